/* A library for LD_PRELOAD: below one directory, the files of a process are on a disk that fails, is full or is slow.
 * Which directory, and what happens there, is in the file that KAFKAPY_DISK names (disk_faults.py); a change counts at
 * once. Pages that are mapped into memory are not affected. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int32_t error;     /* of each operation; 0 for none. ENOSPC: only of those that need space */
    int32_t delay_us;  /* of each write and each sync */
    char directory[PATH_MAX];
};

static volatile const struct control *control;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("KAFKAPY_DISK");
    int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        control = page;
}

enum { READS, NEEDS_SPACE, WRITES };

static int is_there(const char *path) {
    const char *directory = (const char *)control->directory;
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Return the error of an operation on a path, after the delay of a slow disk. */
static int at_path(const char *path, int kind) {
    if (control == NULL || path == NULL || (control->error == 0 && control->delay_us == 0) || !is_there(path))
        return 0;
    if (kind != READS && control->delay_us != 0) {
        struct timespec delay = {control->delay_us / 1000000, control->delay_us % 1000000 * 1000L};
        nanosleep(&delay, NULL);
    }
    return control->error == ENOSPC && kind != NEEDS_SPACE ? 0 : control->error;
}

static int at(int fd, int kind) {
    char link[32], path[PATH_MAX];
    if (control == NULL || (control->error == 0 && control->delay_us == 0))
        return 0;
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length <= 0)
        return 0;
    path[length] = 0;
    return at_path(path, kind);
}

#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (next == NULL) \
        next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define FAIL_IF(look) \
    do { \
        int error = look; \
        if (error != 0) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(ssize_t, "write", int, const void *, size_t);
    FAIL_IF(at(fd, NEEDS_SPACE));
    return next(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(ssize_t, "writev", int, const struct iovec *, int);
    FAIL_IF(at(fd, NEEDS_SPACE));
    return next(fd, parts, count);
}

/* A disk that fails or fills up in the middle of a write leaves a part of it there: so does this, of the first buffer. */
static int part_of(int fd, const struct iovec *parts, off64_t position) {
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (next == NULL)
        next = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    int error = at(fd, NEEDS_SPACE);
    if (error != 0 && parts[0].iov_len > 1)
        next(fd, parts[0].iov_base, parts[0].iov_len / 2, position);
    return error;
}

#define POSITIONED(name) \
    ssize_t name(int fd, const void *data, size_t size, off64_t position) { \
        NEXT(ssize_t, #name, int, const void *, size_t, off64_t); \
        struct iovec whole = {(void *)data, size}; \
        FAIL_IF(part_of(fd, &whole, position)); \
        return next(fd, data, size, position); \
    }
POSITIONED(pwrite)
POSITIONED(pwrite64)

#define POSITIONED_PARTS(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t position) { \
        NEXT(ssize_t, #name, int, const struct iovec *, int, off64_t); \
        FAIL_IF(count > 0 ? part_of(fd, parts, position) : 0); \
        return next(fd, parts, count, position); \
    }
POSITIONED_PARTS(pwritev)
POSITIONED_PARTS(pwritev64)

ssize_t read(int fd, void *data, size_t size) {
    NEXT(ssize_t, "read", int, void *, size_t);
    FAIL_IF(at(fd, READS));
    return next(fd, data, size);
}

#define READ_AT(name) \
    ssize_t name(int fd, void *data, size_t size, off64_t position) { \
        NEXT(ssize_t, #name, int, void *, size_t, off64_t); \
        FAIL_IF(at(fd, READS)); \
        return next(fd, data, size, position); \
    }
READ_AT(pread)
READ_AT(pread64)

#define SEND(name) \
    ssize_t name(int out, int in, off64_t *position, size_t size) { \
        NEXT(ssize_t, #name, int, int, off64_t *, size_t); \
        FAIL_IF(at(in, READS)); \
        return next(out, in, position, size); \
    }
SEND(sendfile)
SEND(sendfile64)

#define SYNC(name) \
    int name(int fd) { \
        NEXT(int, #name, int); \
        FAIL_IF(at(fd, WRITES)); \
        return next(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name) \
    int name(int fd, off64_t size) { \
        NEXT(int, #name, int, off64_t); \
        FAIL_IF(at(fd, WRITES)); \
        return next(fd, size); \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        NEXT(int, #name, const char *, int, ...); \
        FAIL_IF(at_path(path, flags & O_CREAT && access(path, F_OK) != 0 ? NEEDS_SPACE : READS)); \
        return next(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
    NEXT(int, "mkdir", const char *, mode_t);
    FAIL_IF(at_path(path, NEEDS_SPACE));
    return next(path, mode);
}

int rename(const char *old, const char *new) {
    NEXT(int, "rename", const char *, const char *);
    FAIL_IF(at_path(old, WRITES));
    return next(old, new);
}

int unlink(const char *path) {
    NEXT(int, "unlink", const char *);
    FAIL_IF(at_path(path, WRITES));
    return next(path);
}

int rmdir(const char *path) {
    NEXT(int, "rmdir", const char *);
    FAIL_IF(at_path(path, WRITES));
    return next(path);
}

DIR *opendir(const char *path) {
    NEXT(DIR *, "opendir", const char *);
    int error = at_path(path, READS);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    return next(path);
}
