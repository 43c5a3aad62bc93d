/* For LD_PRELOAD: locks and shared memory as on NFS. Linux makes of flock a lock on all bytes of the file, of the kind
 * that SQLite uses, and owned by the open file. No memory is shared with other computers, and so none for SQLite. With
 * LOCKS=none there are no locks at all, and with LOCKS=local those of a local file system. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int flock(int file, int operation) {
  const char *locks = getenv("LOCKS");
  if (locks && !strcmp(locks, "none")) return errno = ENOLCK, -1;
  if (locks && !strcmp(locks, "local")) return syscall(SYS_flock, file, operation);
  struct flock all = {.l_type = operation & LOCK_UN ? F_UNLCK : operation & LOCK_SH ? F_RDLCK : F_WRLCK};
  if (fcntl(file, operation & LOCK_NB ? F_OFD_SETLK : F_OFD_SETLKW, &all) == 0) return 0;
  if (errno == EACCES || errno == EAGAIN) errno = EWOULDBLOCK;
  return -1;
}

static int is_in_folder(int file) {
  char name[64], path[4096], folder[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0 || !getcwd(folder, sizeof folder)) return 0;
  return !strncmp(path, folder, strlen(folder));
}

void *mmap(void *start, size_t length, int protection, int flags, int file, off_t offset) {
  if (file >= 0 && (flags & MAP_SHARED) && is_in_folder(file)) return errno = ENODEV, MAP_FAILED;
  return (void *)syscall(SYS_mmap, start, length, protection, flags, file, offset);
}

void *mmap64(void *start, size_t length, int protection, int flags, int file, off64_t offset) {
  return mmap(start, length, protection, flags, file, offset);
}
