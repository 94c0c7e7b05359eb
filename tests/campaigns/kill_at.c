/* A library for LD_PRELOAD that counts the operations by which a process changes files below results/, logs/ and .snakemake/
   of a project, and sends a signal at one of them. All processes of a command count together, in the mapped file $KILL_STATE.

   The signal comes before the operation or, with `torn`, after half of a write. kill.py lays out the same struct. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ITSELF = 0, GROUP = 1, PARENT = 2 };   /* greater targets are process ids */

static struct state {
    long long count, at;
    int signal, torn, target, writes;   /* writes: whether operation `at` was a write, which can be torn */
    char what[64];
} *state;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("KILL_STATE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED) state = NULL;
    close(file);
}

static int counts(const char *path) {
    static const char *folders[] = {"results/", "logs/", ".snakemake/"};
    if (!state || !path) return 0;
    for (int i = 0; i < 3; i++) {
        const char *found = strstr(path, folders[i]);
        if (found && (found == path || found[-1] == '/')) return 1;
    }
    return 0;
}

static int counts_fd(int fd) {
    char link[64], path[4096];
    if (!state) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return counts(path);
}

static int hit(const char *what, int writes) {   /* true if the signal is due at this operation */
    long long now = __atomic_add_fetch(&state->count, 1, __ATOMIC_SEQ_CST);
    if (now != state->at) return 0;
    strncpy(state->what, what, sizeof state->what - 1);
    state->writes = writes;
    return state->signal != 0;
}

static void strike(void) {
    int saved = errno, target = state->target;
    if (target == PARENT) target = getsid(getppid()) == getsid(0) ? getppid() : getpid();   /* not who started the command */
    kill(target == GROUP ? 0 : target == ITSELF ? getpid() : target, state->signal);
    errno = saved;
}

static void operation(const char *what) {
    if (hit(what, 0)) strike();
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })
#define PATH_OPERATION(type, name, parameters, arguments, path) \
    type name parameters { if (counts(path)) operation(#name); return REAL(name) arguments; }
#define FD_OPERATION(type, name, parameters, arguments) \
    type name parameters { if (counts_fd(fd)) operation(#name); return REAL(name) arguments; }

/* Writes, which can be torn: `half` does the first half. */
#define WRITE(name, parameters, arguments, half) \
    ssize_t name parameters { \
        if (counts_fd(fd) && hit(#name, count > 1)) { \
            if (state->torn && count > 1) { ssize_t done = REAL(name) half; (void)done; } \
            strike(); \
        } \
        return REAL(name) arguments; \
    }
WRITE(write, (int fd, const void *data, size_t count), (fd, data, count), (fd, data, count / 2))
WRITE(pwrite, (int fd, const void *data, size_t count, off_t at), (fd, data, count, at), (fd, data, count / 2, at))
WRITE(pwrite64, (int fd, const void *data, size_t count, off64_t at), (fd, data, count, at), (fd, data, count / 2, at))

FD_OPERATION(ssize_t, writev, (int fd, const struct iovec *pieces, int count), (fd, pieces, count))
FD_OPERATION(int, ftruncate, (int fd, off_t length), (fd, length))
FD_OPERATION(int, ftruncate64, (int fd, off64_t length), (fd, length))
FD_OPERATION(int, posix_fallocate, (int fd, off_t at, off_t length), (fd, at, length))
FD_OPERATION(int, posix_fallocate64, (int fd, off64_t at, off64_t length), (fd, at, length))
PATH_OPERATION(int, rename, (const char *from, const char *to), (from, to), to)
PATH_OPERATION(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), to)
PATH_OPERATION(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags), to)
PATH_OPERATION(int, unlink, (const char *path), (path), path)
PATH_OPERATION(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), path)
PATH_OPERATION(int, mkdir, (const char *path, mode_t mode), (path, mode), path)
PATH_OPERATION(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), path)
PATH_OPERATION(int, rmdir, (const char *path), (path), path)
PATH_OPERATION(int, utimensat, (int at, const char *path, const struct timespec times[2], int flags), (at, path, times, flags),
               path)

ssize_t copy_file_range(int from, off64_t *a, int fd, off64_t *b, size_t count, unsigned flags) {
    if (counts_fd(fd) && hit("copy_file_range", count > 1)) strike();
    return REAL(copy_file_range)(from, a, fd, b, count, flags);
}

/* A killed process loses nothing that it has written, so nothing has to reach the disk, which would take most of the time. */
int fsync(int fd) { if (counts_fd(fd)) operation("fsync"); return 0; }
int fdatasync(int fd) { if (counts_fd(fd)) operation("fdatasync"); return 0; }
int msync(void *start, size_t length, int flags) {   /* whose file is not asked for: stages map nothing else */
    (void)start, (void)length, (void)flags;
    if (state) operation("msync");
    return 0;
}

#define OPEN(name, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) && counts(path)) operation("open"); \
        return REAL(name) arguments; \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
