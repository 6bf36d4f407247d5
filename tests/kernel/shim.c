/* Preloaded before umockdev's library: what a plain folder cannot do for a simulated amdgpu kernel.
 *
 * umockdev shows <tree>/sys and <tree>/dev in place of the real ones ($UMOCKDEV_DIR is <tree>).  On top:
 *
 *   devices   /dev/dri/... and /dev/kfd are plain files of the tree; here they look like character
 *             devices, and their ioctls are answered from files below <tree>/.ioctl/<minor>/.
 *   events    AMDKFD_IOC_SMI_EVENTS gives a FIFO, <tree>/.events/<gpu id>; whoever writes a line into it
 *             plays the kernel.
 *   counters  perf_event_open of a PMU type from 4000 up reads <tree>/.perf/<type>/<config in hex>.
 *   mutexes   the libraries' /dev/shm/rocm_smi_* and the like lie in <tree>/dev/shm, so that nodes and
 *             tests don't wait for each other (a process killed inside a call leaves them locked).
 *   faults    rules in <tree>/.faults, read anew when that file changes.  The syntax stands in README.md.
 *
 * Faults are made where a file is opened, not where it is read: C's stdio reads with an internal call
 * that nothing can intercept.  So a failing read is made by putting another open file in the place of
 * the descriptor: /proc/self/mem, whose first byte can't be read (EIO); where the caller uses read(2) -
 * C++ streams and Python do - the rule's own errno is given.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NEXT(ret, name, ...) ((ret (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define DRM_MAJOR 226
#define KFD_MAJOR 510
#define PERF_TYPE_FIRST 4000
#define PERF_TYPE_LAST 4999

/* ------------------------------------------------------------------ system calls past every interposer */

static int raw_open(const char *path, int flags) { return syscall(SYS_openat, AT_FDCWD, path, flags, 0); }
static ssize_t raw_read(int fd, void *to, size_t n) { return syscall(SYS_read, fd, to, n); }
static void raw_close(int fd) { syscall(SYS_close, fd); }

static ssize_t slurp(const char *path, void *to, size_t n) {
  int fd = raw_open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t got = raw_read(fd, to, n);
  raw_close(fd);
  return got;
}

static const char *tree(size_t *length) {
  static char path[PATH_MAX];
  static size_t n;
  if (!n) {
    const char *given = getenv("UMOCKDEV_DIR");
    if (!given || !*given) { *length = 0; return NULL; }
    n = snprintf(path, sizeof path, "%s", given);
  }
  *length = n;
  return path;
}

/* The path of a descriptor below the tree, without a leading slash; NULL for any other file. */
static const char *tree_path(int fd, char *buffer, size_t size) {
  char link[40];
  size_t n;
  const char *root = tree(&n);
  if (!root) return NULL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t got = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, size - 1);
  if (got <= (ssize_t)n || strncmp(buffer, root, n) || buffer[n] != '/') return NULL;
  buffer[got] = 0;
  return buffer + n + 1;
}

/* ------------------------------------------------------------------ device files */

enum kind { NONE, DRM, KFD, EVENTS, PERF };

static enum kind device_kind(const char *path, int *minor) {
  size_t n;
  const char *root = tree(&n);
  if (!path || !root) return NONE;
  if (!strncmp(path, root, n)) path += n;
  if (*path == '/') path++;
  if (!strncmp(path, "dev/dri/renderD", 15)) { *minor = atoi(path + 15); return DRM; }
  if (!strncmp(path, "dev/dri/card", 12)) { *minor = atoi(path + 12); return DRM; }
  if (!strcmp(path, "dev/kfd")) { *minor = 0; return KFD; }
  return NONE;
}

#define DESCRIPTORS 4096
static struct {
  enum kind kind;         /* EVENTS or PERF: descriptors that exist only here */
  int error;              /* what reading gives, while the descriptor is our /proc/self/mem */
  unsigned generation;    /* of the rules when it was opened: its delay was served then */
  uint32_t type;          /* PERF */
  uint64_t config;        /* PERF */
} table[DESCRIPTORS];
#define KNOWN(fd) ((fd) >= 0 && (fd) < DESCRIPTORS)

static enum kind fd_kind(int fd, int *minor) {
  char buffer[PATH_MAX];
  if (KNOWN(fd) && table[fd].kind) return table[fd].kind;
  const char *path = tree_path(fd, buffer, sizeof buffer);
  return path ? device_kind(path, minor) : NONE;
}

/* The tree's own file for a device path; 0 when the path is none. */
static int device_file(const char *path, char *to, size_t size) {
  int minor;
  size_t n;
  const char *root = tree(&n);
  if (device_kind(path, &minor) == NONE) return 0;
  snprintf(to, size, "%s%s", strncmp(path, root, n) ? root : "", path);
  return 1;
}

static void as_device(enum kind kind, int minor, struct stat *st) {
  st->st_mode = S_IFCHR | 0666;
  st->st_rdev = kind == DRM ? makedev(DRM_MAJOR, minor) : makedev(KFD_MAJOR, 0);
  st->st_size = 0;
}

int fstat(int fd, struct stat *st) {
  int minor, r = syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
  if (!r && S_ISREG(st->st_mode) && !st->st_size) {
    enum kind kind = fd_kind(fd, &minor);
    if (kind == DRM || kind == KFD) as_device(kind, minor, st);
  }
  return r;
}
int fstat64(int fd, struct stat64 *st) { return fstat(fd, (struct stat *)st); }

static int path_stat(const char *name, const char *path, struct stat *st) {
  char file[PATH_MAX];
  int minor = 0;
  if (!device_file(path, file, sizeof file)) return NEXT(int, name, const char *, struct stat *)(path, st);
  int r = syscall(SYS_newfstatat, AT_FDCWD, file, st, 0);
  if (r) return r;
  enum kind kind = device_kind(path, &minor);
  as_device(kind, minor, st);
  return r;
}
int stat(const char *path, struct stat *st) { return path_stat("stat", path, st); }
int stat64(const char *path, struct stat64 *st) { return path_stat("stat64", path, (struct stat *)st); }
int lstat(const char *path, struct stat *st) { return path_stat("lstat", path, st); }
int lstat64(const char *path, struct stat64 *st) { return path_stat("lstat64", path, (struct stat *)st); }
int access(const char *path, int mode) {
  char file[PATH_MAX];
  if (!device_file(path, file, sizeof file)) return NEXT(int, "access", const char *, int)(path, mode);
  return syscall(SYS_faccessat, AT_FDCWD, file, mode);
}

/* ------------------------------------------------------------------ fault rules */

enum action { ERRNO, DELAY, SHORT, OPEN_ERRNO, SEGV, ABORT, EXIT, PRINT, LEAKFD, LOG, ACTIONS };
static const char *const action_names[ACTIONS] = {"errno", "delay", "short", "open_errno", "segv",
                                                  "abort", "exit",  "print", "leakfd",     "log"};
struct rule {
  enum action action;
  double number;
  char glob[256];
  char text[256];
};
#define RULES 128
static struct rule rules[RULES];
static int rule_count;
static unsigned rule_generation;
static struct stat rules_seen;
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;

static void parse_rules(char *text) {
  char *save = NULL;
  rule_count = 0;
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    struct rule *rule = &rules[rule_count];
    char word[32] = "";
    int end = 0;
    if (*line == '#' || sscanf(line, "%255s %31s%n", rule->glob, word, &end) < 2) continue;
    for (rule->action = 0; rule->action < ACTIONS; rule->action++)
      if (!strcmp(word, action_names[rule->action])) break;
    if (rule->action == ACTIONS || rule_count == RULES - 1) {
      dprintf(2, "kernel simulation: bad rule: %s\n", line);
      abort(); /* a test with a misspelt rule must not pass */
    }
    while (line[end] == ' ') end++;
    snprintf(rule->text, sizeof rule->text, "%s", line + end);
    rule->number = strtod(line + end, NULL);
    rule_count++;
  }
}

/* Read the rules anew if the file changed; called with the lock held.  One stat when there is none. */
static void refresh_rules(void) {
  char path[PATH_MAX], text[32768];
  struct stat st;
  size_t n;
  const char *root = tree(&n);
  if (!root) return;
  snprintf(path, sizeof path, "%s/.faults", root);
  if (syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0)) {
    if (rule_count) rule_generation++;
    rule_count = 0;
    rules_seen.st_ino = 0;
    return;
  }
  if (st.st_ino == rules_seen.st_ino && st.st_size == rules_seen.st_size &&
      !memcmp(&st.st_mtim, &rules_seen.st_mtim, sizeof st.st_mtim))
    return;
  ssize_t got = slurp(path, text, sizeof text - 1);
  text[got > 0 ? got : 0] = 0;
  parse_rules(text);
  rules_seen = st;
  rule_generation++;
}

static int matches(const char *glob, const char *path) {
  char anywhere[260];
  if (!fnmatch(glob, path, 0)) return 1;
  snprintf(anywhere, sizeof anywhere, "*/%s", glob);
  return !fnmatch(anywhere, path, 0);
}

#define HITS 16
/* The rules for an open file, copied, so that no lock is held while one is served. */
static int find_rules(int fd, struct rule *hits, char *path, size_t size, unsigned *generation) {
  int count = 0, saved = errno;
  pthread_mutex_lock(&rules_lock);
  refresh_rules();
  *generation = rule_generation;
  if (rule_count) {
    const char *relative = tree_path(fd, path, size);
    if (relative) {
      memmove(path, relative, strlen(relative) + 1);
      for (int i = 0; i < rule_count && count < HITS; i++)
        if (matches(rules[i].glob, path)) hits[count++] = rules[i];
    }
  }
  pthread_mutex_unlock(&rules_lock);
  errno = saved;
  return count;
}

/* Signals don't end it: a read stuck in the driver isn't ended by SIGTERM either. */
static void wait_out(double seconds) {
  struct timespec left = {.tv_sec = 1000000000};
  if (!isinf(seconds)) {
    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
  }
  while (syscall(SYS_nanosleep, &left, &left) && errno == EINTR) {}
}

static void replace(int fd, int by) {
  if (by < 0) return;
  int flags = fcntl(fd, F_GETFD);
  syscall(SYS_dup3, by, fd, flags > 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0);
  raw_close(by);
}

static void truncate_content(int fd, size_t bytes) {
  static char zero[1];
  char *content = malloc(bytes + 1);
  int memory = syscall(SYS_memfd_create, "short", MFD_CLOEXEC);
  ssize_t got = content ? syscall(SYS_pread64, fd, content, bytes, 0) : 0;
  if (memory >= 0) {
    syscall(SYS_pwrite64, memory, got > 0 ? content : zero, got > 0 ? got : 0, 0);
    replace(fd, memory);
  }
  free(content);
}

static void crash(void) { *(volatile int *)8 = 0; }

/* Serve the rules for a file that was just opened; -1 when the caller must fail (errno is set). */
static int opened(int fd) {
  struct rule hits[HITS];
  struct stat st;
  char path[PATH_MAX], line[PATH_MAX + 64];
  size_t n;
  unsigned generation;
  int result = 0, saved = errno;
  if (KNOWN(fd)) table[fd].kind = NONE, table[fd].error = 0;
  int count = find_rules(fd, hits, path, sizeof path, &generation);
  if (KNOWN(fd)) table[fd].generation = generation;
  if (!count) return 0;
  int regular = !syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) && S_ISREG(st.st_mode) &&
                device_kind(path, &(int){0}) == NONE;
  for (int i = 0; i < count; i++) {
    const struct rule *rule = &hits[i];
    switch (rule->action) {
      case OPEN_ERRNO: saved = (int)rule->number; result = -1; break;
      case DELAY: wait_out(rule->number); break;
      case SEGV: crash(); break;
      case ABORT: abort();
      case EXIT: exit((int)rule->number);
      case PRINT:
        snprintf(line, sizeof line, "%s\n", rule->text);
        if (syscall(SYS_write, 1, line, strlen(line)) < 0) {}
        break;
      case LEAKFD:
        for (int k = 0; k < (int)rule->number; k++) raw_open("/dev/null", O_RDONLY | O_CLOEXEC);
        break;
      case LOG: {
        snprintf(line, sizeof line, "%s/.opens", tree(&n));
        int log = syscall(SYS_openat, AT_FDCWD, line, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        snprintf(line, sizeof line, "%d %s\n", (int)getpid(), path);
        if (log >= 0 && syscall(SYS_write, log, line, strlen(line)) < 0) {}
        raw_close(log);
        break;
      }
      case SHORT: if (regular) truncate_content(fd, (size_t)rule->number); break;
      case ERRNO:
        if (regular) {
          replace(fd, raw_open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
          if (KNOWN(fd)) table[fd].error = (int)rule->number;
        }
        break;
      case ACTIONS: break;
    }
  }
  errno = saved;
  return result;
}

/* Faults of a descriptor at the time of a read or an ioctl: -1 when it must fail (errno is set). */
static int used(int fd, off_t offset) {
  struct rule hits[HITS];
  char path[PATH_MAX];
  unsigned generation;
  if (KNOWN(fd) && table[fd].error) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = 0;
    if (got > 4 && !strncmp(path, "/proc/", 6) && !strcmp(path + got - 4, "/mem")) {
      errno = table[fd].error;
      return -1;
    }
    table[fd].error = 0; /* stdio closed it without our knowing and the number is in use again */
  }
  int count = find_rules(fd, hits, path, sizeof path, &generation);
  for (int i = 0; i < count; i++) {
    if (hits[i].action == DELAY && !offset && !(KNOWN(fd) && table[fd].generation == generation))
      wait_out(hits[i].number);
    if (hits[i].action == ERRNO) { errno = (int)hits[i].number; return -1; }
  }
  return 0;
}

/* ------------------------------------------------------------------ open, read, close */

static int after_open(int fd) {
  if (fd < 0 || !opened(fd)) return fd;
  raw_close(fd);
  return -1;
}

static int open_device(const char *path, int flags) {
  char file[PATH_MAX];
  return device_file(path, file, sizeof file) ? raw_open(file, flags) : -2;
}

#define MODE(last) ({ va_list ap; va_start(ap, last); mode_t m = va_arg(ap, mode_t); va_end(ap); m; })
#define OPEN(name)                                                                             \
  int name(const char *path, int flags, ...) {                                                 \
    int fd = open_device(path, flags);                                                         \
    if (fd == -2) fd = NEXT(int, #name, const char *, int, ...)(path, flags, MODE(flags));     \
    return after_open(fd);                                                                     \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                           \
  int name(int at, const char *path, int flags, ...) {                                         \
    int fd = *path == '/' ? open_device(path, flags) : -2;                                     \
    if (fd == -2) fd = NEXT(int, #name, int, const char *, int, ...)(at, path, flags, MODE(flags)); \
    return after_open(fd);                                                                     \
  }
OPENAT(openat)
OPENAT(openat64)
#define OPEN_2(name)                                                                           \
  int name(const char *path, int flags) {                                                      \
    int fd = open_device(path, flags);                                                         \
    return after_open(fd == -2 ? NEXT(int, #name, const char *, int)(path, flags) : fd);       \
  }
OPEN_2(__open_2)
OPEN_2(__open64_2)
#define FOPEN(name)                                                                            \
  FILE *name(const char *path, const char *mode) {                                             \
    FILE *file = NEXT(FILE *, #name, const char *, const char *)(path, mode);                  \
    if (file && opened(fileno(file))) {                                                        \
      int saved = errno;                                                                       \
      fclose(file);                                                                            \
      errno = saved;                                                                           \
      return NULL;                                                                             \
    }                                                                                          \
    return file;                                                                               \
  }
FOPEN(fopen)
FOPEN(fopen64)

static ssize_t read_counter(int fd, void *to, size_t n) {
  char path[PATH_MAX], text[64];
  size_t length;
  snprintf(path, sizeof path, "%s/.perf/%u/%llx", tree(&length), table[fd].type,
           (unsigned long long)table[fd].config);
  ssize_t got = slurp(path, text, sizeof text - 1);
  text[got > 0 ? got : 0] = 0;
  uint64_t values[3] = {strtoull(text, NULL, 10), 1000000000u, 1000000000u}; /* value, enabled, running ns */
  if (n > sizeof values) n = sizeof values;
  memcpy(to, values, n);
  return (ssize_t)n;
}

ssize_t read(int fd, void *to, size_t n) {
  if (KNOWN(fd) && table[fd].kind == PERF) return read_counter(fd, to, n);
  if (used(fd, syscall(SYS_lseek, fd, 0, SEEK_CUR))) return -1;
  return NEXT(ssize_t, "read", int, void *, size_t)(fd, to, n);
}
ssize_t __read_chk(int fd, void *to, size_t n, size_t size) {
  if (n > size) abort();
  return read(fd, to, n);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) { return used(fd, at) ? -1 : syscall(SYS_pread64, fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return pread(fd, to, n, at); }
ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t size) {
  if (n > size) abort();
  return pread(fd, to, n, at);
}
ssize_t readv(int fd, const struct iovec *vector, int count) {
  if (used(fd, syscall(SYS_lseek, fd, 0, SEEK_CUR))) return -1;
  return NEXT(ssize_t, "readv", int, const struct iovec *, int)(fd, vector, count);
}
ssize_t write(int fd, const void *from, size_t n) {
  if (KNOWN(fd) && table[fd].kind == EVENTS) return (ssize_t)n; /* the mask of wanted events: all are sent */
  return NEXT(ssize_t, "write", int, const void *, size_t)(fd, from, n);
}
int close(int fd) {
  if (KNOWN(fd)) table[fd].kind = NONE, table[fd].error = 0;
  return NEXT(int, "close", int)(fd);
}

/* ------------------------------------------------------------------ ioctls */

struct drm_version { int major, minor, patch; size_t name_n; char *name; size_t date_n; char *date; size_t text_n; char *text; };
struct drm_info { uint64_t to; uint32_t size, query, detail[4]; };

static void give_text(size_t *n, char *to, const char *text) {
  size_t length = strlen(text);
  if (to && *n) memcpy(to, text, *n < length ? *n : length);
  *n = length;
}

/* DRM_IOCTL_AMDGPU_INFO: the answer's bytes lie in <query> or <query>.<detail>, usage in the device's own files. */
static int answer_info(int minor, const struct drm_info *info) {
  char folder[PATH_MAX], path[PATH_MAX + 64];
  uint8_t bytes[4096];
  size_t length;
  const char *usage = info->query == 0x10 ? "vram" : info->query == 0x17 ? "vis_vram" : info->query == 0x11 ? "gtt" : NULL;
  snprintf(folder, sizeof folder, "%s/.ioctl/%d", tree(&length), minor);
  if (syscall(SYS_faccessat, AT_FDCWD, folder, F_OK)) { errno = ENODEV; return -1; }
  if (usage) {
    char text[64];
    snprintf(path, sizeof path, "%s/device/mem_info_%s_used", folder, usage);
    ssize_t got = slurp(path, text, sizeof text - 1);
    if (got <= 0) { errno = ENODEV; return -1; }
    text[got] = 0;
    uint64_t value = strtoull(text, NULL, 10);
    memcpy((void *)(uintptr_t)info->to, &value, info->size < sizeof value ? info->size : sizeof value);
    return 0;
  }
  snprintf(path, sizeof path, "%s/%02x", folder, info->query);
  ssize_t got = slurp(path, bytes, sizeof bytes);
  if (got < 0) {
    snprintf(path, sizeof path, "%s/%02x.%x", folder, info->query, info->detail[0]);
    got = slurp(path, bytes, sizeof bytes);
  }
  if (got < 0) { errno = EINVAL; return -1; }
  /* AMD SMI 6.1.2 states 96 bytes for a structure of 24: never write more than the answer has */
  memcpy((void *)(uintptr_t)info->to, bytes, (uint32_t)got < info->size ? (uint32_t)got : info->size);
  return 0;
}

static int drm_ioctl(int minor, unsigned number, void *argument) {
  switch (number) {
    case 0x00: {
      struct drm_version *version = argument;
      version->major = 3, version->minor = 61, version->patch = 0;
      give_text(&version->name_n, version->name, "amdgpu");
      give_text(&version->date_n, version->date, "20150101");
      give_text(&version->text_n, version->text, "AMD GPU");
      return 0;
    }
    case 0x05: ((int *)argument)[1] = 1; return 0; /* GET_CLIENT: authenticated */
    case 0x45: return answer_info(minor, argument);
  }
  errno = EINVAL;
  return -1;
}

static int kfd_ioctl(unsigned number, uint32_t *argument) {
  char path[PATH_MAX];
  size_t length;
  if (number == 0x01) { argument[0] = 1, argument[1] = 17; return 0; } /* version 1.17 */
  if (number != 0x1f) { errno = EINVAL; return -1; }
  snprintf(path, sizeof path, "%s/.events/%u", tree(&length), argument[0]);
  syscall(SYS_mknodat, AT_FDCWD, path, S_IFIFO | 0666, 0);
  int fd = raw_open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  if (KNOWN(fd)) table[fd].kind = EVENTS;
  argument[1] = (uint32_t)fd;
  return 0;
}

int ioctl(int fd, unsigned long request, ...) {
  va_list ap;
  va_start(ap, request);
  void *argument = va_arg(ap, void *);
  va_end(ap);
  int minor = 0;
  unsigned type = _IOC_TYPE(request);
  if (type == 'd' || type == 'K' || (KNOWN(fd) && table[fd].kind)) {
    enum kind kind = fd_kind(fd, &minor);
    if ((kind == DRM || kind == KFD) && used(fd, 1)) return -1;
    if (kind == DRM && type == 'd') return drm_ioctl(minor, _IOC_NR(request), argument);
    if (kind == KFD && type == 'K') return kfd_ioctl(_IOC_NR(request), argument);
    if (kind == PERF) return 0;
  }
  return NEXT(int, "ioctl", int, unsigned long, ...)(fd, request, argument);
}

/* ------------------------------------------------------------------ shared memory */

/* The tree's file for the libraries' shared mutexes; 0 for anybody else's shared memory. */
static int shared_file(const char *name, char *to, size_t size) {
  size_t n;
  const char *root = tree(&n);
  if (*name == '/') name++;
  if (!root || (strncmp(name, "rocm_smi", 8) && strncmp(name, "amdsmi", 6) && strncmp(name, "amd_smi", 7))) return 0;
  snprintf(to, size, "%s/dev/shm/%s", root, name);
  return 1;
}
int shm_open(const char *name, int flags, mode_t mode) {
  char file[PATH_MAX];
  if (!shared_file(name, file, sizeof file)) return NEXT(int, "shm_open", const char *, int, mode_t)(name, flags, mode);
  return syscall(SYS_openat, AT_FDCWD, file, flags | O_NOFOLLOW | O_CLOEXEC, mode);
}
int shm_unlink(const char *name) {
  char file[PATH_MAX];
  if (!shared_file(name, file, sizeof file)) return NEXT(int, "shm_unlink", const char *)(name);
  return syscall(SYS_unlinkat, AT_FDCWD, file, 0);
}

/* ------------------------------------------------------------------ processes */

/* The tree's file for a path below /proc/<pid>, if the tree has that process. */
static int process_file(const char *path, char *to, size_t size) {
  size_t n;
  int end = 0;
  unsigned pid;
  const char *root = tree(&n);
  if (!root || sscanf(path, "/proc/%u%n", &pid, &end) != 1 || (path[end] && path[end] != '/')) return 0;
  snprintf(to, size, "%s/proc/%u", root, pid);
  if (syscall(SYS_faccessat, AT_FDCWD, to, F_OK)) return 0;
  snprintf(to, size, "%s%s", root, path);
  return 1;
}
/* The node's processes are those of the tree and no others; umockdev lists the real ones. */
DIR *opendir(const char *path) {
  char file[PATH_MAX];
  size_t n;
  const char *root = tree(&n);
  int all = root && (!strcmp(path, "/proc") || !strcmp(path, "/proc/"));
  if (all) snprintf(file, sizeof file, "%s/proc", root);
  return NEXT(DIR *, "opendir", const char *)(all ? file : path);
}
/* umockdev leaves a link alone that leads nowhere, as the descriptors of a simulated process do. */
ssize_t readlink(const char *path, char *to, size_t size) {
  char file[PATH_MAX];
  if (!process_file(path, file, sizeof file)) return NEXT(ssize_t, "readlink", const char *, char *, size_t)(path, to, size);
  return syscall(SYS_readlinkat, AT_FDCWD, file, to, size);
}
/* A process of the tree lives, as far as a library can ask; it can't be killed. */
int kill(pid_t pid, int signal) {
  char path[PATH_MAX], file[PATH_MAX];
  snprintf(path, sizeof path, "/proc/%d", (int)pid);
  if (pid > 0 && !signal && process_file(path, file, sizeof file)) return 0;
  return NEXT(int, "kill", pid_t, int)(pid, signal);
}

/* ------------------------------------------------------------------ perf counters */

/* perf_event_open has no C function: it comes through syscall(2). */
long syscall(long number, ...) {
  static long (*next)(long, ...);
  va_list ap;
  long a[6];
  va_start(ap, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
  va_end(ap);
  if (!next) next = NEXT(long, "syscall", long, ...);
  if (number == SYS_perf_event_open && a[0]) {
    uint32_t type = *(uint32_t *)a[0];
    if (type >= PERF_TYPE_FIRST && type <= PERF_TYPE_LAST) {
      int fd = (int)next(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
      if (KNOWN(fd)) {
        table[fd].kind = PERF;
        table[fd].type = type;
        table[fd].config = ((uint64_t *)a[0])[1];
      }
      return fd;
    }
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
