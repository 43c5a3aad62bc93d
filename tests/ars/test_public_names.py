"""`import ars` offers these names. Removing or renaming one breaks the programs of others."""

import inspect

import ars

NAMES = """
ABSTAIN ArsError Certificate Cluster FAMILIES Family Finished Grid Inputs NoiseKind Plan Prediction Record Run
RunProgress RunResult Scope Smooth SmoothedClassifier Summary Tolerance __version__ certify_run certify_votes
family_named format_radius load merge_runs predict_from_votes read_records read_run summarize
"""


def test_the_public_names_are_these():
    assert sorted(ars.__all__) == sorted(NAMES.split())
    assert len(set(ars.__all__)) == len(ars.__all__)


def test_each_is_there_and_the_classes_and_functions_say_what_they_are():
    for name in ars.__all__:
        found = getattr(ars, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert (found.__doc__ or "").strip(), name
            assert not (found.__doc__ or "").startswith(f"{name}("), f"{name} has only a signature"
