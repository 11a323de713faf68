/* Preloaded, it makes reading or opening files fail a number of times, as a worn disk or a busy server would:
   those named failing-read-ERRNO-TIMES… and failing-open-ERRNO-TIMES…. The count is for all of the process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static struct { char path[4096]; int failed; } seen[512];

/* Whether this call must fail; then errno is set. */
static int fails(const char *path, const char *how) {
    int number, times, place = 0;
    char pattern[64];
    const char *name = path ? strstr(path, how) : NULL;
    snprintf(pattern, sizeof pattern, "%s-%%d-%%d", how);
    if (!name || sscanf(name, pattern, &number, &times) != 2)
        return 0;
    while (seen[place].path[0] && strcmp(seen[place].path, path))
        place++;
    strcpy(seen[place].path, path);
    if (seen[place].failed >= times)
        return 0;
    seen[place].failed++;
    errno = number;
    return 1;
}

static int read_fails(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return fails(path, "failing-read");
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t read(int fd, void *to, size_t count) { return read_fails(fd) ? -1 : NEXT(read)(fd, to, count); }
ssize_t pread(int fd, void *to, size_t count, off_t at) { return read_fails(fd) ? -1 : NEXT(pread)(fd, to, count, at); }
ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    return read_fails(fd) ? -1 : NEXT(pread64)(fd, to, count, at);
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        const mode_t mode = va_arg(rest, mode_t);                                                                      \
        va_end(rest);                                                                                                  \
        return fails(path, "failing-open") ? -1 : NEXT(name)(path, flags, mode);                                       \
    }
OPEN(open)
OPEN(open64)
