/*
 * A disk that can lose power, fill up and fail, for one process: an LD_PRELOAD library.
 *
 * It stands between a program and the C library for every call that changes files below FAULTS_ROOT, lets the
 * call through, and notes in the journal at FAULTS_JOURNAL what it did, with the bytes written. The journal is
 * written straight through, so it survives kill -9; disk.py replays it to tell what a power loss would have
 * left behind. A sync is noted when it begins and when it has ended, because it promises only what was written
 * before it began. The real fsync is not called: nothing that is decided here depends on it.
 *
 * FAULTS_CONTROL is a small file, mapped by this library and by the test, that says which calls are to fail.
 * struct fault and struct control are known to disk.py by their layout.
 *
 * What is not modelled (shared writable mappings, fallocate, copies made inside the kernel, hard links) is
 * noted as such, and the replay refuses to go on. Programs that the process starts are on the same disk and
 * write to the same journal; what it does after a fork without an exec is not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 65536
/* Fewer parts than the kernel takes at once, so that a note, which has two more, is one append. */
#define PARTS 1000

struct fault {
    int32_t armed;       /* 0: this fault is off */
    int32_t passes;      /* matching calls that still succeed */
    int32_t error;       /* errno of the call that fails */
    int32_t room_bytes;  /* bytes that writes still take before they fail; the last one is cut short */
    int32_t sticky;      /* 1: fail until cleared; 0: fail once */
    int32_t fired;       /* calls that failed */
    char match[232];     /* part of the path; empty: any */
};

struct control {
    struct fault write;
    struct fault sync;
    int32_t sync_delay_us;
};

struct note {
    uint64_t sequence; /* counted by each process for itself */
    uint64_t inode;
    int64_t offset;
    uint32_t path_bytes;
    uint32_t data_bytes;
    uint32_t process;
    uint32_t kind;
};

struct file {
    volatile int tracked;
    int append;
    uint64_t inode;
    char *path;
};

static struct file files[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_bytes;
static int journal = -1;
static struct control *control;
static uint64_t sequence;
static pid_t owner;

#define REAL(name) ((__typeof__(&name))real_of(#name, &slot_##name))
#define SLOT(name) static void *slot_##name

static void *real_of(const char *name, void **slot) {
    if (!*slot) *slot = dlsym(RTLD_NEXT, name);
    return *slot;
}

SLOT(open64); SLOT(openat64); SLOT(close); SLOT(write); SLOT(writev); SLOT(pwrite64); SLOT(pwritev64);
SLOT(pwritev64v2); SLOT(ftruncate64); SLOT(truncate64); SLOT(fsync); SLOT(fdatasync); SLOT(renameat);
SLOT(unlinkat); SLOT(mkdirat); SLOT(linkat); SLOT(mmap64); SLOT(fallocate64); SLOT(posix_fallocate64);
SLOT(copy_file_range); SLOT(sendfile64);

ssize_t sendfile64(int out, int in, off64_t *offset, size_t bytes);

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("FAULTS_ROOT"), *notes = getenv("FAULTS_JOURNAL"), *map = getenv("FAULTS_CONTROL");
    if (!below || !notes || !map || !realpath(below, root)) return;
    int fd = REAL(open64)(map, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *at = REAL(mmap64)(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REAL(close)(fd);
    if (at == MAP_FAILED) return;
    control = at;
    root_bytes = strlen(root);
    owner = getpid();
    journal = REAL(open64)(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

/* ---- what is ours, and the journal ---- */

static int seen(void) { return journal >= 0 && getpid() == owner; }

static struct file *tracked(int fd) {
    if (fd < 0 || fd >= FDS || !files[fd].tracked || !seen()) return NULL;
    return &files[fd];
}

/* The absolute path of `path` as seen from `dirfd`, if it lies below the root; else NULL. */
static const char *ours(int dirfd, const char *path, char *into) {
    if (!path || !seen()) return NULL;
    if (path[0] == '/') {
        snprintf(into, PATH_MAX, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        if (dirfd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t bytes = readlink(link, base, sizeof base - 1);
        if (bytes < 0) return NULL;
        base[bytes] = 0;
        if (snprintf(into, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return NULL;
    }
    if (strncmp(into, root, root_bytes) || (into[root_bytes] != '/' && into[root_bytes] != 0)) return NULL;
    return into;
}

/* With the lock held. One record is one append, so a kill leaves at most the last one torn. */
static uint64_t note(char kind, uint64_t inode, int64_t offset, const char *path, const struct iovec *data,
                     int count, size_t bytes) {
    struct note head = {++sequence, inode, offset, path ? strlen(path) : 0, bytes, owner, kind};
    struct iovec parts[PARTS + 2];
    int used = 0;
    parts[used++] = (struct iovec){&head, sizeof head};
    parts[used++] = (struct iovec){(void *)path, head.path_bytes};
    for (int i = 0; i < count && bytes; i++) {
        size_t part = data[i].iov_len < bytes ? data[i].iov_len : bytes;
        parts[used++] = (struct iovec){data[i].iov_base, part};
        bytes -= part;
    }
    int saved = errno, at = 0;
    while (at < used) {
        ssize_t done = REAL(writev)(journal, parts + at, used - at);
        if (done < 0) {
            fprintf(stderr, "faults: the journal cannot be written: %s\n", strerror(errno));
            abort();
        }
        while (at < used && (size_t)done >= parts[at].iov_len) done -= parts[at++].iov_len;
        if (at < used) {
            parts[at].iov_base = (char *)parts[at].iov_base + done;
            parts[at].iov_len -= done;
        }
    }
    errno = saved;
    return head.sequence;
}

static void note_text(char kind, uint64_t inode, const char *path, const char *text) {
    struct iovec data = {(void *)text, text ? strlen(text) : 0};
    note(kind, inode, 0, path, &data, 1, data.iov_len);
}

static void unmodelled(const char *path, const char *call) {
    pthread_mutex_lock(&lock);
    note_text('X', 0, path, call);
    pthread_mutex_unlock(&lock);
}

/* ---- faults ---- */

/* With the lock held: whether this call fails. `*room`, the bytes to write, is lowered for a short write. */
static int strikes(struct fault *fault, const char *path, size_t *room) {
    if (!fault->armed || (fault->match[0] && !strstr(path, fault->match))) return 0;
    if (fault->passes > 0) {
        fault->passes--;
        return 0;
    }
    if (room && fault->room_bytes > 0) {
        if (*room > (size_t)fault->room_bytes) *room = fault->room_bytes;
        fault->room_bytes -= *room;
        return 0;
    }
    if (!fault->sticky) fault->armed = 0;
    __atomic_add_fetch(&fault->fired, 1, __ATOMIC_SEQ_CST);
    errno = fault->error;
    return 1;
}

/* ---- opening and closing ---- */

static int opened(int dirfd, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    if ((flags & O_TMPFILE) == O_TMPFILE || !ours(dirfd, path, whole))
        return REAL(openat64)(dirfd, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat before, now;
    int existed = !lstat(whole, &before), fd = -1;
    if (existed || !(flags & O_CREAT) || !strikes(&control->write, whole, NULL))
        fd = REAL(openat64)(dirfd, path, flags, mode);
    if (fd >= 0 && fd < FDS && !fstat(fd, &now)) {
        struct file *file = &files[fd];
        free(file->path);
        file->path = strdup(whole);
        file->inode = now.st_ino;
        file->append = (flags & O_APPEND) != 0;
        file->tracked = 1;
        if (!existed) note('O', now.st_ino, 0, whole, NULL, 0, 0);
        else if ((flags & O_TRUNC) && before.st_size) note('T', now.st_ino, 0, whole, NULL, 0, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                                                                       \
    int name(const char *path, int flags, ...) {                                                         \
        va_list rest;                                                                                    \
        va_start(rest, flags);                                                                           \
        mode_t mode = mode_of(flags, rest);                                                              \
        va_end(rest);                                                                                    \
        return opened(AT_FDCWD, path, flags, mode);                                                      \
    }
#define OPENAT(name)                                                                                     \
    int name(int dirfd, const char *path, int flags, ...) {                                              \
        va_list rest;                                                                                    \
        va_start(rest, flags);                                                                           \
        mode_t mode = mode_of(flags, rest);                                                              \
        va_end(rest);                                                                                    \
        return opened(dirfd, path, flags, mode);                                                         \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
    struct file *file = tracked(fd);
    if (!file) return REAL(close)(fd);
    pthread_mutex_lock(&lock);
    file->tracked = 0;
    int result = REAL(close)(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- writing ---- */

/* One vector, at `offset`, or where the file stands when that is negative. */
static ssize_t put(int fd, struct file *file, const struct iovec *parts, int count, off64_t offset) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    pthread_mutex_lock(&lock);
    struct stat now;
    fstat(fd, &now);
    off64_t at = file->append ? now.st_size : offset >= 0 ? offset : lseek64(fd, 0, SEEK_CUR);
    size_t room = bytes;
    ssize_t done = -1;
    if (!strikes(&control->write, file->path, &room)) {
        struct iovec cut[PARTS];
        int used = 0;
        for (size_t left = room; used < count && used < PARTS && left; used++) {
            cut[used] = parts[used];
            if (cut[used].iov_len > left) cut[used].iov_len = left;
            left -= cut[used].iov_len;
        }
        done = offset >= 0 ? REAL(pwritev64)(fd, cut, used, offset) : REAL(writev)(fd, cut, used);
        if (done > 0) note('W', file->inode, at, file->path, cut, used, done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    struct file *file = tracked(fd);
    struct iovec part = {(void *)bytes, count};
    return file ? put(fd, file, &part, 1, -1) : REAL(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct file *file = tracked(fd);
    return file ? put(fd, file, parts, count, -1) : REAL(writev)(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    struct file *file = tracked(fd);
    struct iovec part = {(void *)bytes, count};
    return file ? put(fd, file, &part, 1, offset) : REAL(pwrite64)(fd, bytes, count, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwrite64(fd, bytes, count, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    struct file *file = tracked(fd);
    return file ? put(fd, file, parts, count, offset) : REAL(pwritev64)(fd, parts, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    struct file *file = tracked(fd);
    if (!file) return REAL(pwritev64v2)(fd, parts, count, offset, flags);
    if (flags) unmodelled(file->path, "pwritev2 with flags");
    return put(fd, file, parts, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return pwritev64v2(fd, parts, count, offset, flags);
}

int ftruncate64(int fd, off64_t size) {
    struct file *file = tracked(fd);
    if (!file) return REAL(ftruncate64)(fd, size);
    pthread_mutex_lock(&lock);
    int result = REAL(ftruncate64)(fd, size);
    if (!result) note('T', file->inode, size, file->path, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size) {
    char whole[PATH_MAX];
    if (!ours(AT_FDCWD, path, whole)) return REAL(truncate64)(path, size);
    pthread_mutex_lock(&lock);
    struct stat now;
    int result = REAL(truncate64)(path, size);
    if (!result && !stat(whole, &now)) note('T', now.st_ino, size, whole, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int truncate(const char *path, off_t size) { return truncate64(path, size); }

/* ---- syncing ---- */

static int sync_of(int fd, struct file *file) {
    (void)fd;
    pthread_mutex_lock(&lock);
    uint64_t inode = file->inode, since = note('B', inode, 0, file->path, NULL, 0, 0);
    int delay = control->sync_delay_us;
    pthread_mutex_unlock(&lock);
    if (delay > 0) usleep(delay);
    pthread_mutex_lock(&lock);
    int failed = strikes(&control->sync, file->path, NULL);
    note(failed ? 'F' : 'E', inode, since, file->path, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return failed ? -1 : 0;
}

int fsync(int fd) {
    struct file *file = tracked(fd);
    return file ? sync_of(fd, file) : REAL(fsync)(fd);
}

int fdatasync(int fd) {
    struct file *file = tracked(fd);
    return file ? sync_of(fd, file) : REAL(fdatasync)(fd);
}

/* ---- directory entries ---- */

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    const char *ours_old = ours(from_fd, from, old), *ours_new = ours(to_fd, to, new);
    if (!ours_old && !ours_new) return REAL(renameat)(from_fd, from, to_fd, to);
    if (!ours_old || !ours_new) unmodelled(ours_old ? old : new, "rename across the root");
    pthread_mutex_lock(&lock);
    int result = REAL(renameat)(from_fd, from, to_fd, to);
    if (!result) note_text('R', 0, old, new);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int dirfd, const char *path, int flags) {
    char whole[PATH_MAX];
    if (!ours(dirfd, path, whole)) return REAL(unlinkat)(dirfd, path, flags);
    pthread_mutex_lock(&lock);
    int result = REAL(unlinkat)(dirfd, path, flags);
    if (!result) note('U', 0, 0, whole, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dirfd, const char *path, mode_t mode) {
    char whole[PATH_MAX];
    if (!ours(dirfd, path, whole)) return REAL(mkdirat)(dirfd, path, mode);
    pthread_mutex_lock(&lock);
    struct stat now;
    int result = -1;
    if (!strikes(&control->write, whole, NULL)) result = REAL(mkdirat)(dirfd, path, mode);
    if (!result && !stat(whole, &now)) note('M', now.st_ino, 0, whole, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* ---- what the replay does not know ---- */

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    char whole[PATH_MAX];
    if (ours(to_fd, to, whole)) unmodelled(whole, "link");
    return REAL(linkat)(from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

void *mmap64(void *at, size_t bytes, int access, int flags, int fd, off64_t offset) {
    struct file *file = tracked(fd);
    /* SQLite's shared memory is rebuilt at every start; the replay leaves it out. */
    if (file && (flags & MAP_SHARED) && (access & PROT_WRITE) && !strstr(file->path, "-shm"))
        unmodelled(file->path, "shared writable mapping");
    return REAL(mmap64)(at, bytes, access, flags, fd, offset);
}

void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
    return mmap64(at, bytes, access, flags, fd, offset);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
    struct file *file = tracked(fd);
    if (file) unmodelled(file->path, "fallocate");
    return REAL(fallocate64)(fd, mode, offset, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) { return fallocate64(fd, mode, offset, bytes); }

int posix_fallocate64(int fd, off64_t offset, off64_t bytes) {
    struct file *file = tracked(fd);
    if (file) unmodelled(file->path, "posix_fallocate");
    return REAL(posix_fallocate64)(fd, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes) { return posix_fallocate64(fd, offset, bytes); }

ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    struct file *file = tracked(out);
    if (file) unmodelled(file->path, "copy_file_range");
    return REAL(copy_file_range)(in, in_at, out, out_at, bytes, flags);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t bytes) {
    struct file *file = tracked(out);
    if (file) unmodelled(file->path, "sendfile");
    return REAL(sendfile64)(out, in, offset, bytes);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t bytes) { return sendfile64(out, in, offset, bytes); }
