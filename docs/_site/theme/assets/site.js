// What the theme makes while the page runs, for people without a mouse: whatever scrolls sideways can be reached with the
// tab key, and the places of the buttons that copy code are no landmarks.
const wide = ".md-typeset pre > code, .md-typeset__scrollwrap";

function improve() {
  for (const element of document.querySelectorAll(wide)) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  }
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) buttons.setAttribute("role", "presentation");
}

new MutationObserver(improve).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", improve);
improve();
