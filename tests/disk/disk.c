// A disk that fails, or loses power: preloaded into the program (LD_PRELOAD), for files below $DISK_PATH.
//
// DISK_CALL and DISK_N: that call of the process fails with the error number DISK_ERROR, and leaves a mark in DISK_MARK.
// The call `short` is a write of half of the bytes.
// DISK_HANG: the fsync of a file with this in its path never ends.
// DISK_STALL: no write to a file with this in its path ends once it has 4096 bytes.
// DISK_IMAGE: what a loss of power leaves. At each fsync of a file its content is copied there as `f-INODE`; a folder's
// fsync leaves the inodes of its files as `d-INODE`. A syncfs is the fsync of all files and folders below $DISK_PATH, and
// fails as one.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_below(const char *path) {
    const char *below = getenv("DISK_PATH");
    return below && strstr(path, below) != NULL;
}

static int has_path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length >= 0) path[length] = 0;
    return length >= 0;
}

static int is_ours(int fd) {
    char path[4096];
    return has_path_of(fd, path, sizeof path) && is_below(path);
}

static void hang(int fd, const char *inside) {
    char path[4096];
    if (inside && has_path_of(fd, path, sizeof path) && strstr(path, inside))
        for (;;) pause();
}

static int fails(const char *call) {
    static atomic_int count;
    const char *wanted = getenv("DISK_CALL");
    if (!wanted || strcmp(wanted, call) != 0) return 0;
    if (atomic_fetch_add(&count, 1) + 1 != atoi(getenv("DISK_N"))) return 0;
    FILE *mark = fopen(getenv("DISK_MARK"), "w");
    if (mark) fclose(mark);
    errno = atoi(getenv("DISK_ERROR"));
    return 1;
}

// Written under a temporary name first, since the process may be killed here.
static void keep(int fd) {
    const char *image = getenv("DISK_IMAGE");
    struct stat facts;
    if (!image || !is_ours(fd) || fstat(fd, &facts) != 0) return;
    int is_folder = S_ISDIR(facts.st_mode);
    char own[64], new[4200], path[4096];
    snprintf(path, sizeof path, "%s/%c-%lu", image, is_folder ? 'd' : 'f', facts.st_ino);
    snprintf(new, sizeof new, "%s.new-%d", path, gettid());
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    FILE *to = fopen(new, "w");
    if (!to) return;
    if (is_folder) {
        DIR *folder = opendir(own);
        struct dirent *entry;
        while (folder && (entry = readdir(folder)))
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                fprintf(to, "%lu %s\n", entry->d_ino, entry->d_name);
        if (folder) closedir(folder);
    } else {
        FILE *from = fopen(own, "r");
        char block[65536];
        size_t length;
        while (from && (length = fread(block, 1, sizeof block, from)) > 0) fwrite(block, 1, length, to);
        if (from) fclose(from);
    }
    fclose(to);
    REAL(rename);
    real(new, path);
}

// A file that loses its name is kept open, so that its inode is not reused: the image identifies files by
// inode.
static void hold(const char *path) {
    if (getenv("DISK_IMAGE") && is_below(path)) fopen(path, "r");
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    struct stat facts;
    if (getenv("DISK_STALL") && fstat(fd, &facts) == 0 && facts.st_size >= 4096) hang(fd, getenv("DISK_STALL"));
    if (getenv("DISK_CALL") && is_ours(fd)) {
        if (fails("write")) return -1;
        if (length > 1 && fails("short")) return real(fd, bytes, length / 2);
    }
    return real(fd, bytes, length);
}

int fsync(int fd) {
    REAL(fsync);
    hang(fd, getenv("DISK_HANG"));
    if (is_ours(fd) && fails("fsync")) return -1;
    keep(fd);
    return real(fd);
}

static int keep_path(const char *path, const struct stat *facts, int type, struct FTW *place) {
    (void)facts, (void)type, (void)place;
    int fd = openat(AT_FDCWD, path, O_RDONLY);
    if (fd >= 0) keep(fd), syscall(SYS_close, fd);
    return 0;
}

int syncfs(int fd) {
    REAL(syncfs);
    if (is_ours(fd) && fails("fsync")) return -1;
    if (getenv("DISK_IMAGE") && is_ours(fd)) nftw(getenv("DISK_PATH"), keep_path, 16, FTW_PHYS);
    return real(fd);
}

int close(int fd) {
    REAL(close);
    int failed = getenv("DISK_CALL") && is_ours(fd) && fails("close");
    int error = errno, result = real(fd);
    errno = error;
    return failed ? -1 : result;
}

int unlink(const char *path) {
    REAL(unlink);
    hold(path);
    return is_below(path) && fails("unlink") ? -1 : real(path);
}

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    return is_ours(fd) && fails("ftruncate") ? -1 : real(fd, length);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags) {
    REAL(copy_file_range);
    return is_ours(to) && fails("copy") ? -1 : real(from, from_at, to, to_at, length, flags);
}

// DISK_CLOCK: the seconds since 1970 that the system's clock stands at.
int clock_gettime(clockid_t id, struct timespec *time) {
    REAL(clock_gettime);
    const char *seconds = id == CLOCK_REALTIME ? getenv("DISK_CLOCK") : NULL;
    if (!seconds) return real(id, time);
    *time = (struct timespec){.tv_sec = atol(seconds)};
    return 0;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    hold(to);
    return is_below(to) && fails("rename") ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return is_below(path) && fails("mkdir") ? -1 : real(path, mode);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    __builtin_va_list rest;
    __builtin_va_start(rest, flags);
    mode_t mode = __builtin_va_arg(rest, int);
    __builtin_va_end(rest);
    return is_below(path) && fails("open") ? -1 : real(path, flags, mode);
}
