/* Names of files and folders: what may be made, and what the journal keeps of it. */
#include "world.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static uint64_t grave_count;

REAL(int, renameat, int, const char *, int, const char *);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdirat, int, const char *, mode_t);
REAL(int, statvfs64, const char *, struct statvfs64 *);

void find_names(void)
{
	FIND(renameat); FIND(linkat); FIND(unlinkat); FIND(mkdirat); FIND(statvfs64);
}

static int open_with(int at, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX];
	prepare();
	if (boot_id && name && strcmp(name, "/proc/sys/kernel/random/boot_id") == 0)
		return real_openat64(AT_FDCWD, boot_id, flags, mode);
	if (!ours_at(at, name, path)) {
		int fd = real_openat64(at, name, flags, mode);
		mark(fd, 0);
		return fd;
	}
	struct stat found;
	int is_new = (flags & O_CREAT) && stat(path, &found) != 0;
	if (is_new && refuses_bytes() < 0)
		return -1;
	pthread_mutex_lock(&lock);
	int fd = real_openat64(at, name, flags, mode), error = errno;
	mark(fd, 1);
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

/* What loses its name gets another one among the graves; its path, or "" when there was nothing. */
static void bury(const char *path, char *grave)
{
	snprintf(grave, PATH_MAX, "%s/%d-%llu", graves, getpid(), (unsigned long long)++grave_count);
	if (real_linkat(AT_FDCWD, path, AT_FDCWD, grave, 0) != 0)
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

/* A second name: it takes room in its folder, and is lost as the name of a new file is. */
int linkat(int from, const char *name, int to, const char *new_name, int flags)
{
	char path[PATH_MAX];
	struct stat found;
	prepare();
	if (!ours_at(to, new_name, path))
		return real_linkat(from, name, to, new_name, flags);
	if (refuses_bytes() < 0)
		return -1;
	pthread_mutex_lock(&lock);
	int code = real_linkat(from, name, to, new_name, flags), error = errno;
	if (code == 0 && tracks() && lstat(path, &found) == 0) {
		struct entry entry = {.op = OP_CREATE, .inode = found.st_ino, .folder = folder_of(path)};
		note(&entry, path, 0, 0);
	}
	pthread_mutex_unlock(&lock);
	errno = error;
	return code;
}
int link(const char *name, const char *new_name) { return linkat(AT_FDCWD, name, AT_FDCWD, new_name, 0); }

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
