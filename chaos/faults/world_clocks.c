/* Clocks that are wrong, and what waits by them.
 *
 * INVARIANT  no wait that has a deadline ends before the clock that is told is there; where that clock is not changed
 *            meanwhile, it ends when it is.
 * PREVENTS   a fault that outlives its end: deadlines reckoned by a clock that has gained two seconds, waited for by the
 *            true one, make each wait two seconds longer for as long as the process lives; by one that has lost, a busy loop.
 * PROVED BY  tests/chaos/test_faults_waits.py::test_a_wait_is_as_long_as_it_should_be_after_a_clock_was_wrong
 *
 * The kernel knows nothing of the lie, so a deadline is moved to the true time at which the clock that is told will be there.
 * Waits by a duration (epoll, poll, nanosleep) last as long as they were asked to, of true time.
 */
#include "world.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

REAL(int, clock_gettime, clockid_t, struct timespec *);

/* --- what is told -------------------------------------------------------------------------------------------------- */

struct lie {
	int64_t offset, base, rate; /* the rate is in parts of a million; 0 is as it should be */
};

/* As it is at one time: VERSION is odd while the harness writes. */
static struct lie lie_of(int first)
{
	int64_t version;
	struct lie found;
	do {
		version = __atomic_load_n(&control[VERSION], __ATOMIC_ACQUIRE);
		found = (struct lie){control[first], control[first + 1], control[first + 2]};
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while ((version & 1) || version != control[VERSION]);
	return found;
}

/* The first slot of what is told of it, or -1: its truth. */
static int slot_of(clockid_t clock)
{
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		return WALL_OFFSET;
	if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME)
		return STEADY_OFFSET;
	return -1;
}

static void skew(struct timespec *at, int first)
{
	struct lie lie = lie_of(first);
	int64_t now = at->tv_sec * BILLION + at->tv_nsec;
	if (now < lie.base) /* read before the rate was changed */
		now = lie.base;
	int64_t told = now + lie.offset;
	if (lie.rate)
		told += (now - lie.base) / MILLION * (lie.rate - MILLION)
		      + (now - lie.base) % MILLION * (lie.rate - MILLION) / MILLION;
	at->tv_sec = told / BILLION;
	at->tv_nsec = told % BILLION;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
	prepare();
	int code = real_clock_gettime(clock, at), first = slot_of(clock);
	if (code == 0 && first >= 0)
		skew(at, first);
	return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;
	int code = clock_gettime(CLOCK_REALTIME, &now);
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return code;
}

time_t time(time_t *at)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}

/* --- deadlines ----------------------------------------------------------------------------------------------------- */

/* A deadline by a clock that is wrong now and will be set right is looked at again after so long: a wall clock that was set
 * back an hour would keep its waits for an hour, though it is mended after a second. What a steady clock has gained is
 * never taken back; so a process whose fault is over waits once for each wait, as it did before. */
#define SLICE BILLION

/* When the clock that is told will be at `until`, by the true one. The libc judges what is no time. */
static struct timespec truly(clockid_t clock, const struct timespec *until)
{
	int first = slot_of(clock);
	if (first < 0 || until->tv_sec < 0 || until->tv_nsec < 0 || until->tv_nsec >= BILLION)
		return *until;
	struct lie lie = lie_of(first);
	__int128 at = (__int128)until->tv_sec * BILLION + until->tv_nsec - lie.offset; /* years up to the end of time_t */
	if (lie.rate > 0 && at > lie.base)
		at = lie.base + ((at - lie.base) * MILLION + lie.rate - 1) / lie.rate;
	if (lie.rate || (first == WALL_OFFSET && lie.offset)) {
		struct timespec now;
		real_clock_gettime(clock, &now);
		__int128 latest = (__int128)now.tv_sec * BILLION + now.tv_nsec + SLICE;
		if (at > latest)
			at = latest;
	}
	if (at < 0)
		at = 0;
	__int128 seconds = at / BILLION;
	return (struct timespec){seconds > INT64_MAX ? INT64_MAX : (int64_t)seconds, at % BILLION};
}

/* Whether a wait that has ended is over too early: a slice of it alone, or its clock has been changed meanwhile. */
static int is_early(clockid_t clock, const struct timespec *until)
{
	struct timespec now;
	if (slot_of(clock) < 0 || clock_gettime(clock, &now) != 0)
		return 0;
	return now.tv_sec < until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec < until->tv_nsec);
}

/* `wait` with the deadline `at`, whose value is `over` when that is reached, until it really is. */
#define WAIT(clock, until, over, wait)                        \
	do {                                                  \
		struct timespec at;                           \
		prepare();                                    \
		do {                                          \
			at = truly(clock, until);             \
			code = wait;                          \
		} while ((over) && is_early(clock, until));   \
	} while (0)

REAL(int, clock_nanosleep, clockid_t, int, const struct timespec *, struct timespec *);
REAL(int, sem_timedwait, sem_t *, const struct timespec *);
REAL(int, sem_clockwait, sem_t *, clockid_t, const struct timespec *);

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
	int code;
	prepare();
	if (!(flags & TIMER_ABSTIME))
		return real_clock_nanosleep(clock, flags, until, left);
	WAIT(clock, until, code == 0, real_clock_nanosleep(clock, flags, &at, left));
	return code;
}

int sem_timedwait(sem_t *sem, const struct timespec *until)
{
	int code;
	WAIT(CLOCK_REALTIME, until, code != 0 && errno == ETIMEDOUT, real_sem_timedwait(sem, &at));
	return code;
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
	int code;
	WAIT(clock, until, code != 0 && errno == ETIMEDOUT, real_sem_clockwait(sem, clock, &at));
	return code;
}

/* Locks that are given up at a time: of the wall clock, or of a named one. */
#define LOCKS(type, timed, clocked)                                                             \
	REAL(int, timed, type *, const struct timespec *);                                      \
	REAL(int, clocked, type *, clockid_t, const struct timespec *);                         \
	int timed(type *lock, const struct timespec *until)                                     \
	{                                                                                       \
		int code;                                                                       \
		WAIT(CLOCK_REALTIME, until, code == ETIMEDOUT, real_##timed(lock, &at));        \
		return code;                                                                    \
	}                                                                                       \
	int clocked(type *lock, clockid_t clock, const struct timespec *until)                  \
	{                                                                                       \
		int code;                                                                       \
		WAIT(clock, until, code == ETIMEDOUT, real_##clocked(lock, clock, &at));        \
		return code;                                                                    \
	}
LOCKS(pthread_mutex_t, pthread_mutex_timedlock, pthread_mutex_clocklock)
LOCKS(pthread_rwlock_t, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock)
LOCKS(pthread_rwlock_t, pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock)

/* --- condition variables ------------------------------------------------------------------------------------------- */

REAL(int, pthread_cond_timedwait, pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
REAL(int, pthread_cond_clockwait, pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

static int clock_byte = -1; /* where a condition variable has its clock, and in which bit: set for the steady one */
static unsigned char clock_bit;

/* There is no function that tells which clock a condition variable was made for. A list of those that pthread_cond_init made
 * would have to be locked, in every wait. glibc keeps it in one bit (since 2.25 bit 1 of __wrefs); which one is not taken for
 * granted: it is what two of them differ by. Where that is not one bit, deadlines stay as they were given. */
static void find_clock_of_conditions(void)
{
	pthread_condattr_t how;
	pthread_cond_t steady, wall;
	memset(&steady, 0, sizeof steady);
	memset(&wall, 0, sizeof wall);
	pthread_condattr_init(&how);
	pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
	pthread_cond_init(&steady, &how);
	pthread_cond_init(&wall, 0);
	int bits = 0;
	for (size_t at = 0; at < sizeof steady; at++) {
		unsigned char differs = ((unsigned char *)&steady)[at] ^ ((unsigned char *)&wall)[at];
		if (!differs)
			continue;
		bits += __builtin_popcount(differs);
		clock_byte = at;
		clock_bit = differs;
	}
	if (bits != 1 || !(((unsigned char *)&steady)[clock_byte] & clock_bit))
		clock_byte = -1;
	pthread_cond_destroy(&steady);
	pthread_cond_destroy(&wall);
	pthread_condattr_destroy(&how);
}

/* -1, a clock that there is not, where it can't be known. */
static clockid_t clock_of(pthread_cond_t *cond)
{
	if (clock_byte < 0)
		return -1;
	return ((volatile unsigned char *)cond)[clock_byte] & clock_bit ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

/* Who is woken for nothing looks at what it waits for, and waits again (POSIX). To wait again for it here would lose a wakeup
 * that came between the two. */
static int woken(int code, clockid_t clock, const struct timespec *until)
{
	return code == ETIMEDOUT && is_early(clock, until) ? 0 : code;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	prepare();
	clockid_t clock = clock_of(cond);
	struct timespec at = truly(clock, until);
	return woken(real_pthread_cond_timedwait(cond, mutex, &at), clock, until);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	prepare();
	struct timespec at = truly(clock, until);
	return woken(real_pthread_cond_clockwait(cond, mutex, clock, &at), clock, until);
}

void find_clocks(void)
{
	FIND(clock_gettime); FIND(clock_nanosleep); FIND(sem_timedwait); FIND(sem_clockwait);
	FIND(pthread_mutex_timedlock); FIND(pthread_mutex_clocklock);
	FIND(pthread_rwlock_timedrdlock); FIND(pthread_rwlock_clockrdlock);
	FIND(pthread_rwlock_timedwrlock); FIND(pthread_rwlock_clockwrlock);
	FIND(pthread_cond_clockwait);
	/* Of the oldest architectures glibc has two, for condition variables of another form, and dlsym finds the older one
	 * before 2.36. All others have it once, by a version of their own. */
	real_pthread_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
	if (!real_pthread_cond_timedwait)
		FIND(pthread_cond_timedwait);
	find_clock_of_conditions();
}
