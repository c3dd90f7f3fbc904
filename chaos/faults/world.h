/* What the parts of the library share (world.c says what it is for). Nothing of this can be seen by the process. */
#ifndef CHAOS_WORLD_H
#define CHAOS_WORLD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The page, as in world.py. OFFSET, BASE and RATE of a clock follow each other. */
enum { VERSION, WALL_OFFSET, WALL_BASE, WALL_RATE, STEADY_OFFSET, STEADY_BASE, STEADY_RATE,
       FULL, WRITE_ERROR, SYNC_ERROR, READ_ERROR, ONE_IN, SLOW_SYNC_US, SLOW_WRITE_US, TRACKING, SLOTS };
#define BILLION 1000000000LL
#define MILLION 1000000LL

/* The function that would have been called without us. */
#define REAL(type, name, ...) static type (*real_##name)(__VA_ARGS__)
#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)

#pragma GCC visibility push(hidden)

extern volatile int64_t *control;
void prepare(void); /* each function that is called instead of libc's begins with it */
void find_clocks(void), find_bytes(void), find_names(void);

/* Which files, and whether it is their turn to fail: -1 with errno, and nothing has been done. */
int is_marked(int fd); /* it was opened below the folder; a look at a table */
int ours(int fd);      /* and a file or a folder has that number now, no socket and no pipe */
int ours_at(int at, const char *name, char *path); /* `path` becomes absolute, of PATH_MAX bytes */
void mark(int fd, int yes);
int fails(int slot);
int refuses_bytes(void);

/* The journal: always under the lock. */
enum { OP_WRITE = 1, OP_TRUNCATE, OP_SYNC, OP_CREATE, OP_RENAME, OP_UNLINK, OP_MKDIR, OP_RMDIR };
struct entry { /* little-endian, as the machines are that this runs on; then the two paths and the old bytes */
	uint32_t magic, op;
	uint64_t inode, folder, other_folder, position, length, old_size, old_length;
	uint32_t path_length, other_length;
};
extern pthread_mutex_t lock;
extern const char *graves, *boot_id;
extern uint64_t journal_end;
int tracks(void);
void note(struct entry *entry, const char *path, const char *other, const void *old);
uint64_t folder_of(const char *path);

extern int (*real_openat64)(int, const char *, int, ...);
extern int (*real_close)(int);
extern ssize_t (*real_pread64)(int, void *, size_t, off64_t);
extern ssize_t (*real_writev)(int, const struct iovec *, int);

#pragma GCC visibility pop
#endif
