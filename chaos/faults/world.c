/* A world that lies to one process: preloaded before libc, told what to do by a page that the harness writes to.
 *
 * Here are its page, its files and their names; world_clocks.c has the clocks, and what waits by them.
 *
 * CHAOS_CONTROL   the page; its slots are numbered as in world.py
 * CHAOS_FOLDER    the process's data, with a slash at its end: nothing else is touched
 * CHAOS_JOURNAL   while slot TRACKING is set, what was written and renamed, and what was synced of it (power.py reads it)
 * CHAOS_GRAVES    a folder of the same disk, that keeps what was removed or replaced meanwhile
 * CHAOS_BOOT_ID   is read instead of the kernel's boot id: after power was lost the machine is another one
 *
 * Old contents are noted before a change, the change is noted after it was done: who is killed between the two has
 * changed something that counts as durable, which a kernel may do too.
 */
#include "world.h"
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
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OP_WRITE = 1, OP_TRUNCATE, OP_SYNC, OP_CREATE, OP_RENAME, OP_UNLINK, OP_MKDIR, OP_RMDIR };
#define FDS 65536

struct entry { /* little-endian, as the machines are that this runs on; then the two paths and the old bytes */
	uint32_t magic, op;
	uint64_t inode, folder, other_folder, position, length, old_size, old_length;
	uint32_t path_length, other_length;
};

static volatile int64_t nothing[SLOTS];
volatile int64_t *control = nothing;
static const char *folder, *graves, *boot_id;
static size_t folder_length;
static int journal = -1;
static uint64_t journal_end, grave_count;
static unsigned char is_ours[FDS];
static unsigned calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

REAL(int, openat64, int, const char *, int, ...);
REAL(int, close, int);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwritev64v2, int, const struct iovec *, int, off64_t, int);
REAL(ssize_t, pread64, int, void *, size_t, off64_t);
REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
REAL(int, ftruncate64, int, off64_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, renameat, int, const char *, int, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdirat, int, const char *, mode_t);
REAL(int, statvfs64, const char *, struct statvfs64 *);

static void begin(void)
{
	FIND(openat64); FIND(close); FIND(pwrite64); FIND(write); FIND(writev); FIND(pwritev64v2);
	FIND(pread64); FIND(preadv64v2); FIND(ftruncate64); FIND(fsync); FIND(fdatasync); FIND(renameat);
	FIND(unlinkat); FIND(mkdirat); FIND(statvfs64);
	find_clocks();
	const char *page = getenv("CHAOS_CONTROL"), *kept = getenv("CHAOS_JOURNAL");
	folder = getenv("CHAOS_FOLDER");
	graves = getenv("CHAOS_GRAVES");
	boot_id = getenv("CHAOS_BOOT_ID");
	if (!page || !folder || !graves || !kept)
		return;
	folder_length = strlen(folder);
	int fd = real_openat64(AT_FDCWD, page, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		void *mapped = mmap(0, SLOTS * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		if (mapped != MAP_FAILED)
			control = mapped;
		real_close(fd);
	}
	journal = real_openat64(AT_FDCWD, kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	struct stat found;
	if (journal >= 0 && fstat(journal, &found) == 0)
		journal_end = found.st_size;
}

__attribute__((constructor)) void prepare(void) { pthread_once(&once, begin); }

/* --- which files, and whether it is their turn to fail ------------------------------------------------------------- */

static int ours(int fd) { return fd >= 0 && fd < FDS && is_ours[fd]; }

/* The path of `name` as it is called from the folder `at`, absolute; 0 if it is none of ours. */
static int ours_at(int at, const char *name, char *path)
{
	if (!name || !folder_length)
		return 0;
	if (name[0] == '/') {
		if (strlen(name) >= PATH_MAX)
			return 0;
		strcpy(path, name);
	} else {
		char link[64], start[PATH_MAX];
		ssize_t length;
		if (at == AT_FDCWD)
			strcpy(link, "/proc/self/cwd");
		else
			snprintf(link, sizeof link, "/proc/self/fd/%d", at);
		length = readlink(link, start, sizeof start - 1);
		if (length < 0)
			return 0;
		start[length] = 0;
		if (snprintf(path, PATH_MAX, "%s/%s", start, name) >= PATH_MAX)
			return 0;
	}
	return strncmp(path, folder, folder_length) == 0 || (strlen(path) == folder_length - 1 && strncmp(path, folder, folder_length - 1) == 0);
}

/* 0, or -1 with errno: the call fails without having done anything. */
static int fails(int slot)
{
	int64_t code = control[slot];
	if (code && (control[ONE_IN] <= 1 || __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % control[ONE_IN] == 0)) {
		errno = (int)code;
		return -1;
	}
	return 0;
}

static int refuses_bytes(void)
{
	if (control[SLOW_WRITE_US])
		usleep(control[SLOW_WRITE_US]);
	if (control[FULL]) {
		errno = ENOSPC;
		return -1;
	}
	return fails(WRITE_ERROR);
}

/* --- the journal: always under the lock ---------------------------------------------------------------------------- */

static void note(struct entry *entry, const char *path, const char *other, const void *old)
{
	entry->magic = 0x46454e43;
	entry->path_length = path ? strlen(path) : 0;
	entry->other_length = other ? strlen(other) : 0;
	struct iovec parts[] = {{entry, sizeof *entry}, {(void *)path, entry->path_length},
				{(void *)other, entry->other_length}, {(void *)old, entry->old_length}};
	ssize_t written = real_writev(journal, parts, 4);
	if (written > 0)
		journal_end += written;
}

static uint64_t folder_of(const char *path)
{
	char above[PATH_MAX];
	struct stat found;
	strcpy(above, path);
	char *slash = strrchr(above, '/');
	if (!slash)
		return 0;
	*slash = 0;
	return stat(above, &found) == 0 ? found.st_ino : 0;
}

static int tracks(void) { return journal >= 0 && control[TRACKING]; }

/* What is about to be overwritten or cut off, and how long the file is. */
static void *before(int fd, struct entry *entry, off64_t position, uint64_t length)
{
	struct stat found;
	if (fstat(fd, &found) != 0)
		return 0;
	entry->inode = found.st_ino;
	entry->position = position;
	entry->length = length;
	entry->old_size = found.st_size;
	if (position >= found.st_size)
		return 0;
	uint64_t kept = found.st_size - position < (off64_t)length ? (uint64_t)(found.st_size - position) : length;
	void *old = malloc(kept);
	ssize_t got = -1;
	if (old) {
		char link[64]; /* the file may be open for writing alone */
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		int reader = real_openat64(AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
		if (reader >= 0) {
			got = real_pread64(reader, old, kept, position);
			real_close(reader);
		}
	}
	entry->old_length = got > 0 ? got : 0;
	return old;
}

/* --- bytes --------------------------------------------------------------------------------------------------------- */

static ssize_t write_at(int fd, const struct iovec *parts, int count, off64_t position, int flags, int moves)
{
	if (ours(fd) && refuses_bytes() < 0)
		return -1;
	if (!ours(fd) || !tracks())
		return moves ? real_writev(fd, parts, count) : real_pwritev64v2(fd, parts, count, position, flags);
	uint64_t length = 0;
	for (int each = 0; each < count; each++)
		length += parts[each].iov_len;
	struct entry entry = {.op = OP_WRITE};
	pthread_mutex_lock(&lock);
	int appends = fcntl(fd, F_GETFL) & O_APPEND;
	void *old = before(fd, &entry, moves ? lseek64(fd, 0, appends ? SEEK_END : SEEK_CUR) : position, length);
	ssize_t written = moves ? real_writev(fd, parts, count) : real_pwritev64v2(fd, parts, count, position, flags);
	int error = errno;
	if (written > 0)
		note(&entry, 0, 0, old);
	pthread_mutex_unlock(&lock);
	free(old);
	errno = error;
	return written;
}

ssize_t write(int fd, const void *data, size_t length)
{
	struct iovec part = {(void *)data, length};
	prepare();
	return ours(fd) ? write_at(fd, &part, 1, 0, 0, 1) : real_write(fd, data, length);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	prepare();
	return write_at(fd, parts, count, 0, 0, 1);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t position)
{
	struct iovec part = {(void *)data, length};
	prepare();
	return ours(fd) ? write_at(fd, &part, 1, position, 0, 0) : real_pwrite64(fd, data, length, position);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t position) { return pwrite64(fd, data, length, position); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t position, int flags)
{
	prepare();
	return write_at(fd, parts, count, position, flags, 0);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags) { return pwritev64v2(fd, parts, count, position, flags); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t position) { return pwritev64v2(fd, parts, count, position, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position) { return pwritev64v2(fd, parts, count, position, 0); }

ssize_t pread64(int fd, void *data, size_t length, off64_t position)
{
	prepare();
	return ours(fd) && fails(READ_ERROR) < 0 ? -1 : real_pread64(fd, data, length, position);
}
ssize_t pread(int fd, void *data, size_t length, off_t position) { return pread64(fd, data, length, position); }

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t position, int flags)
{
	prepare();
	return ours(fd) && fails(READ_ERROR) < 0 ? -1 : real_preadv64v2(fd, parts, count, position, flags);
}
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t position, int flags) { return preadv64v2(fd, parts, count, position, flags); }

int ftruncate64(int fd, off64_t size)
{
	prepare();
	if (!ours(fd) || !tracks())
		return real_ftruncate64(fd, size);
	struct entry entry = {.op = OP_TRUNCATE};
	pthread_mutex_lock(&lock);
	void *old = before(fd, &entry, size, INT64_MAX);
	int code = real_ftruncate64(fd, size), error = errno;
	if (code == 0)
		note(&entry, 0, 0, old);
	pthread_mutex_unlock(&lock);
	free(old);
	errno = error;
	return code;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int sync_with(int (*real)(int), int fd)
{
	if (!ours(fd))
		return real(fd);
	struct entry entry = {.op = OP_SYNC};
	struct stat found;
	pthread_mutex_lock(&lock);
	entry.position = journal_end; /* what was noted before this holds when it returns */
	entry.inode = fstat(fd, &found) == 0 ? found.st_ino : 0;
	pthread_mutex_unlock(&lock);
	for (int64_t slept = 0; slept < control[SLOW_SYNC_US]; slept += 10000)
		usleep(control[SLOW_SYNC_US] - slept < 10000 ? control[SLOW_SYNC_US] - slept : 10000);
	if (fails(SYNC_ERROR) < 0)
		return -1;
	int code = real(fd), error = errno;
	if (code == 0 && tracks()) {
		pthread_mutex_lock(&lock);
		note(&entry, 0, 0, 0);
		pthread_mutex_unlock(&lock);
	}
	errno = error;
	return code;
}
int fsync(int fd) { prepare(); return sync_with(real_fsync, fd); }
int fdatasync(int fd) { prepare(); return sync_with(real_fdatasync, fd); }

/* --- names --------------------------------------------------------------------------------------------------------- */

static int open_with(int at, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX];
	prepare();
	if (boot_id && name && strcmp(name, "/proc/sys/kernel/random/boot_id") == 0)
		return real_openat64(AT_FDCWD, boot_id, flags, mode);
	if (!ours_at(at, name, path)) {
		int fd = real_openat64(at, name, flags, mode);
		if (fd >= 0 && fd < FDS)
			is_ours[fd] = 0;
		return fd;
	}
	struct stat found;
	int is_new = (flags & O_CREAT) && stat(path, &found) != 0;
	if (is_new && refuses_bytes() < 0)
		return -1;
	pthread_mutex_lock(&lock);
	int fd = real_openat64(at, name, flags, mode), error = errno;
	if (fd >= 0 && fd < FDS)
		is_ours[fd] = 1;
	if (fd >= 0 && is_new && tracks() && fstat(fd, &found) == 0) {
		struct entry entry = {.op = OP_CREATE, .inode = found.st_ino, .folder = folder_of(path)};
		note(&entry, path, 0, 0);
	}
	pthread_mutex_unlock(&lock);
	errno = error;
	return fd;
}

#define OPENS(name, parameters, at, path)                      \
	int name parameters                                    \
	{                                                      \
		va_list rest;                                  \
		va_start(rest, flags);                         \
		mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
		va_end(rest);                                  \
		return open_with(at, path, flags, mode);       \
	}
OPENS(open, (const char *name, int flags, ...), AT_FDCWD, name)
OPENS(open64, (const char *name, int flags, ...), AT_FDCWD, name)
OPENS(openat, (int at, const char *name, int flags, ...), at, name)
OPENS(openat64, (int at, const char *name, int flags, ...), at, name)

int close(int fd)
{
	prepare();
	if (fd >= 0 && fd < FDS)
		is_ours[fd] = 0;
	return real_close(fd);
}

/* What loses its name gets another one among the graves; its path, or "" when there was nothing. */
static void bury(const char *path, char *grave)
{
	snprintf(grave, PATH_MAX, "%s/%d-%llu", graves, getpid(), (unsigned long long)++grave_count);
	if (link(path, grave) != 0)
		grave[0] = 0;
}

int renameat(int from, const char *name, int to, const char *new_name)
{
	char path[PATH_MAX], new_path[PATH_MAX], grave[PATH_MAX] = "";
	struct stat found;
	prepare();
	if (!ours_at(from, name, path) || !ours_at(to, new_name, new_path) || !tracks())
		return real_renameat(from, name, to, new_name);
	pthread_mutex_lock(&lock);
	struct entry entry = {.op = OP_RENAME, .folder = folder_of(path), .other_folder = folder_of(new_path)};
	if (stat(path, &found) == 0)
		entry.inode = found.st_ino;
	bury(new_path, grave);
	entry.old_length = strlen(grave);
	int code = real_renameat(from, name, to, new_name), error = errno;
	if (code == 0)
		note(&entry, path, new_path, grave);
	pthread_mutex_unlock(&lock);
	errno = error;
	return code;
}
int rename(const char *name, const char *new_name) { return renameat(AT_FDCWD, name, AT_FDCWD, new_name); }

int unlinkat(int at, const char *name, int flags)
{
	char path[PATH_MAX], grave[PATH_MAX] = "";
	struct stat found;
	prepare();
	if (!ours_at(at, name, path) || !tracks())
		return real_unlinkat(at, name, flags);
	pthread_mutex_lock(&lock);
	struct entry entry = {.op = flags & AT_REMOVEDIR ? OP_RMDIR : OP_UNLINK, .folder = folder_of(path)};
	if (lstat(path, &found) == 0)
		entry.inode = found.st_ino;
	if (!(flags & AT_REMOVEDIR))
		bury(path, grave);
	entry.old_length = strlen(grave);
	int code = real_unlinkat(at, name, flags), error = errno;
	if (code == 0)
		note(&entry, path, 0, grave);
	pthread_mutex_unlock(&lock);
	errno = error;
	return code;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int at, const char *name, mode_t mode)
{
	char path[PATH_MAX];
	struct stat found;
	prepare();
	if (!ours_at(at, name, path))
		return real_mkdirat(at, name, mode);
	if (refuses_bytes() < 0)
		return -1;
	pthread_mutex_lock(&lock);
	int code = real_mkdirat(at, name, mode), error = errno;
	if (code == 0 && tracks() && stat(path, &found) == 0) {
		struct entry entry = {.op = OP_MKDIR, .inode = found.st_ino, .folder = folder_of(path)};
		note(&entry, path, 0, 0);
	}
	pthread_mutex_unlock(&lock);
	errno = error;
	return code;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int statvfs64(const char *path, struct statvfs64 *found)
{
	char whole[PATH_MAX];
	prepare();
	int code = real_statvfs64(path, found);
	if (code == 0 && control[FULL] && ours_at(AT_FDCWD, path, whole))
		found->f_bavail = found->f_bfree = 0;
	return code;
}
int statvfs(const char *path, struct statvfs *found) { return statvfs64(path, (struct statvfs64 *)found); }
