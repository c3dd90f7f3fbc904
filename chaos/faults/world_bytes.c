/* What is read, written, made longer and synced of the files that are watched, by whatever call.
 *
 * INVARIANT  what fails for one call that reads, or writes, fails for all that do the same by a descriptor of these files.
 * PREVENTS   a disk that fails and strikes nobody: fetches go by sendfile, Kafka's too, and a copy of a descriptor writes on.
 * PROVED BY  tests/chaos/test_faults_world.py::test_no_way_to_read_passes_by_a_disk_that_fails
 *
 * What a process maps into its memory the kernel reads and writes by itself; that, io_uring, splice and what FILE* reads inside
 * libc pass by.
 */
#include "world.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t (*real_pread64)(int, void *, size_t, off64_t);
ssize_t (*real_writev)(int, const struct iovec *, int);
REAL(ssize_t, read, int, void *, size_t);
REAL(ssize_t, readv, int, const struct iovec *, int);
REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
REAL(ssize_t, __read_chk, int, void *, size_t, size_t);
REAL(ssize_t, __pread64_chk, int, void *, size_t, off64_t, size_t);
REAL(ssize_t, sendfile64, int, int, off64_t *, size_t);
REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(ssize_t, pwritev64v2, int, const struct iovec *, int, off64_t, int);
REAL(int, fallocate64, int, int, off64_t, off64_t);
REAL(int, posix_fallocate64, int, off64_t, off64_t);
REAL(int, ftruncate64, int, off64_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);

void find_bytes(void)
{
	FIND(read); FIND(readv); FIND(pread64); FIND(preadv64v2); FIND(__read_chk); FIND(__pread64_chk);
	FIND(sendfile64); FIND(copy_file_range); FIND(write); FIND(writev); FIND(pwrite64); FIND(pwritev64v2);
	FIND(fallocate64); FIND(posix_fallocate64); FIND(ftruncate64); FIND(fsync); FIND(fdatasync);
}

/* --- changes, as the journal keeps them ---------------------------------------------------------------------------- */

struct change {
	struct entry entry;
	void *old;
};

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

/* 1 if the change is to be noted: it has the lock then, until `ends`. At the place where the descriptor is without `position`. */
static int begins(struct change *change, uint32_t op, int fd, const off64_t *position, uint64_t length)
{
	if (!tracks() || !ours(fd))
		return 0;
	*change = (struct change){.entry.op = op};
	pthread_mutex_lock(&lock);
	int appends = !position && fcntl(fd, F_GETFL) & O_APPEND;
	off64_t at = position ? *position : lseek64(fd, 0, appends ? SEEK_END : SEEK_CUR);
	change->old = before(fd, &change->entry, at, length);
	return 1;
}

static void ends(struct change *change, int is_done)
{
	int error = errno;
	if (is_done)
		note(&change->entry, 0, 0, change->old);
	pthread_mutex_unlock(&lock);
	free(change->old);
	errno = error;
}

static ssize_t written(struct change *change, int is_noted, ssize_t length)
{
	if (is_noted) {
		change->entry.length = length;
		ends(change, length > 0);
	}
	return length;
}

static int may_not_read(int fd) { return control[READ_ERROR] && ours(fd) && fails(READ_ERROR) < 0; }
static int may_not_write(int fd) { return ours(fd) && refuses_bytes() < 0; }

/* --- reads --------------------------------------------------------------------------------------------------------- */

#define READS(name, parameters, fd, call)                      \
	ssize_t name parameters                                \
	{                                                      \
		prepare();                                     \
		return may_not_read(fd) ? -1 : call;           \
	}
READS(read, (int fd, void *data, size_t length), fd, real_read(fd, data, length))
READS(readv, (int fd, const struct iovec *parts, int count), fd, real_readv(fd, parts, count))
READS(pread64, (int fd, void *data, size_t length, off64_t position), fd, real_pread64(fd, data, length, position))
READS(preadv64v2, (int fd, const struct iovec *parts, int count, off64_t position, int flags), fd,
      real_preadv64v2(fd, parts, count, position, flags))
ssize_t pread(int fd, void *data, size_t length, off_t position) { return pread64(fd, data, length, position); }
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t position, int flags)
{
	return preadv64v2(fd, parts, count, position, flags);
}
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t position) { return preadv64v2(fd, parts, count, position, 0); }
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t position) { return preadv64v2(fd, parts, count, position, 0); }

/* As they are called by what was built with _FORTIFY_SOURCE. */
READS(__read_chk, (int fd, void *data, size_t length, size_t room), fd, real___read_chk(fd, data, length, room))
READS(__pread64_chk, (int fd, void *data, size_t length, off64_t position, size_t room), fd,
      real___pread64_chk(fd, data, length, position, room))
ssize_t __pread_chk(int fd, void *data, size_t length, off_t position, size_t room)
{
	return __pread64_chk(fd, data, length, position, room);
}

/* --- from a file to another, or to a socket, inside the kernel ------------------------------------------------------- */

ssize_t sendfile64(int to, int from, off64_t *position, size_t length)
{
	struct change change;
	prepare();
	if (may_not_read(from) || may_not_write(to))
		return -1;
	int is_noted = begins(&change, OP_WRITE, to, 0, length);
	return written(&change, is_noted, real_sendfile64(to, from, position, length));
}
ssize_t sendfile(int to, int from, off_t *position, size_t length) { return sendfile64(to, from, position, length); }

ssize_t copy_file_range(int from, off64_t *position, int to, off64_t *target, size_t length, unsigned flags)
{
	struct change change;
	prepare();
	if (may_not_read(from) || may_not_write(to))
		return -1;
	int is_noted = begins(&change, OP_WRITE, to, target, length);
	return written(&change, is_noted, real_copy_file_range(from, position, to, target, length, flags));
}

/* --- writes -------------------------------------------------------------------------------------------------------- */

static ssize_t write_at(int fd, const struct iovec *parts, int count, const off64_t *position, int flags)
{
	struct change change;
	if (may_not_write(fd))
		return -1;
	uint64_t length = 0;
	for (int each = 0; each < count; each++)
		length += parts[each].iov_len;
	int is_noted = begins(&change, OP_WRITE, fd, position, length);
	return written(&change, is_noted, position ? real_pwritev64v2(fd, parts, count, *position, flags) : real_writev(fd, parts, count));
}

ssize_t write(int fd, const void *data, size_t length)
{
	struct iovec part = {(void *)data, length};
	prepare();
	return is_marked(fd) ? write_at(fd, &part, 1, 0, 0) : real_write(fd, data, length);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	prepare();
	return is_marked(fd) ? write_at(fd, parts, count, 0, 0) : real_writev(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t position)
{
	struct iovec part = {(void *)data, length};
	prepare();
	return is_marked(fd) ? write_at(fd, &part, 1, &position, 0) : real_pwrite64(fd, data, length, position);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t position) { return pwrite64(fd, data, length, position); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t position, int flags)
{
	prepare();
	return is_marked(fd) ? write_at(fd, parts, count, &position, flags) : real_pwritev64v2(fd, parts, count, position, flags);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags)
{
	return pwritev64v2(fd, parts, count, position, flags);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t position) { return pwritev64v2(fd, parts, count, position, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position) { return pwritev64v2(fd, parts, count, position, 0); }

/* --- lengths ------------------------------------------------------------------------------------------------------- */

/* Room that is asked for before anything is written. What a file has grown by is not noted, nor is it by ftruncate: a size that
 * came to the disk without the bytes is what a power cut may leave. */
int fallocate64(int fd, int mode, off64_t position, off64_t length)
{
	prepare();
	int gives_back = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE);
	return !gives_back && may_not_write(fd) ? -1 : real_fallocate64(fd, mode, position, length);
}
int fallocate(int fd, int mode, off_t position, off_t length) { return fallocate64(fd, mode, position, length); }

int posix_fallocate64(int fd, off64_t position, off64_t length)
{
	int error = errno; /* is left alone: the answer is the error */
	prepare();
	if (may_not_write(fd)) {
		int code = errno;
		errno = error;
		return code;
	}
	return real_posix_fallocate64(fd, position, length);
}
int posix_fallocate(int fd, off_t position, off_t length) { return posix_fallocate64(fd, position, length); }

int ftruncate64(int fd, off64_t size)
{
	struct change change;
	prepare();
	int is_noted = begins(&change, OP_TRUNCATE, fd, &size, INT64_MAX), code = real_ftruncate64(fd, size);
	if (is_noted)
		ends(&change, code == 0);
	return code;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

/* --- syncs ---------------------------------------------------------------------------------------------------------- */

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
