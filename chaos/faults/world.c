/* A world that lies to one process: preloaded before libc, told what to do by a page that the harness writes to.
 *
 * Here are its page, the descriptors of what it watches, and the journal; world_clocks.c has the clocks and what waits by
 * them, world_bytes.c what is read, written and synced, world_names.c what is made, renamed and removed.
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
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define FDS 65536

static volatile int64_t nothing[SLOTS];
volatile int64_t *control = nothing;
const char *graves, *boot_id;
static const char *folder;
static size_t folder_length;
static int journal = -1;
uint64_t journal_end;
static unsigned char is_ours[FDS];
static pid_t owner;
static unsigned calls;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int (*real_openat64)(int, const char *, int, ...);
int (*real_close)(int);
REAL(int, dup, int);
REAL(int, dup2, int, int);
REAL(int, dup3, int, int, int);
REAL(int, fcntl64, int, int, ...);
REAL(int, fclose, FILE *);
REAL(int, closedir, DIR *);
REAL(int, close_range, unsigned, unsigned, int);
REAL(void, closefrom, int);

static void owned(void) { owner = getpid(); }

static void begin(void)
{
	FIND(openat64); FIND(close); FIND(dup); FIND(dup2); FIND(dup3); FIND(fcntl64);
	FIND(fclose); FIND(closedir); FIND(close_range); FIND(closefrom);
	if (!real_fcntl64) /* glibc before 2.28 */
		real_fcntl64 = dlsym(RTLD_NEXT, "fcntl");
	find_clocks();
	find_bytes();
	find_names();
	owned();
	pthread_atfork(0, 0, owned);
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

int is_marked(int fd) { return fd >= 0 && fd < FDS && is_ours[fd]; }

/* A number may have another owner that no call told of: libc opens and closes by itself, too. */
int ours(int fd)
{
	struct stat found;
	return is_marked(fd) && fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

/* What a child of vfork does before its program begins, with numbers of its own, it does in its parent's memory. */
void mark(int fd, int yes)
{
	if (fd >= 0 && fd < FDS && is_ours[fd] != yes && getpid() == owner)
		is_ours[fd] = yes;
}

/* The path of `name` as it is called from the folder `at`, absolute; 0 if it is none of ours. */
int ours_at(int at, const char *name, char *path)
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
int fails(int slot)
{
	int64_t code = control[slot];
	if (code && (control[ONE_IN] <= 1 || __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % control[ONE_IN] == 0)) {
		errno = (int)code;
		return -1;
	}
	return 0;
}

int refuses_bytes(void)
{
	if (control[SLOW_WRITE_US])
		usleep(control[SLOW_WRITE_US]);
	if (control[FULL]) {
		errno = ENOSPC;
		return -1;
	}
	return fails(WRITE_ERROR);
}

/* --- descriptors: a copy of one of ours is ours, whatever was there before ------------------------------------------ */

static int copied(int from, int to)
{
	if (to >= 0 && to != from)
		mark(to, is_marked(from));
	return to;
}
int dup(int fd) { prepare(); return copied(fd, real_dup(fd)); }
int dup2(int fd, int to) { prepare(); return copied(fd, real_dup2(fd, to)); }
int dup3(int fd, int to, int flags) { prepare(); return copied(fd, real_dup3(fd, to, flags)); }

int fcntl64(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *given = va_arg(rest, void *); /* a number or a pointer, or what nobody looks at */
	va_end(rest);
	prepare();
	int code = real_fcntl64(fd, command, given);
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, code) : code;
}
int fcntl(int fd, int command, ...) __attribute__((alias("fcntl64")));

int close(int fd)
{
	prepare();
	mark(fd, 0);
	return real_close(fd);
}

int fclose(FILE *stream)
{
	prepare();
	mark(fileno(stream), 0);
	return real_fclose(stream);
}

int closedir(DIR *stream)
{
	prepare();
	mark(dirfd(stream), 0);
	return real_closedir(stream);
}

static void unmark(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < FDS; fd++)
		mark(fd, 0);
}

int close_range(unsigned first, unsigned last, int flags)
{
	prepare();
	if (!(flags & CLOSE_RANGE_CLOEXEC))
		unmark(first, last);
	return real_close_range(first, last, flags);
}

void closefrom(int first)
{
	prepare();
	unmark(first < 0 ? 0 : first, UINT_MAX);
	real_closefrom(first);
}

/* --- the journal --------------------------------------------------------------------------------------------------- */

void note(struct entry *entry, const char *path, const char *other, const void *old)
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

uint64_t folder_of(const char *path)
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

int tracks(void) { return journal >= 0 && control[TRACKING]; }
