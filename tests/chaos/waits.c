/* Waits in every way that has a deadline, each on a thread of its own, as callers do: until the deadline is told to be over.
 *
 * waits MS    says "up", and for each line that it reads a line for each wait:
 *             its name, how long it took by the true clock, how long by the one that is told, how often it came back; in µs
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MILLION 1000000LL

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static long wait_us;

static long long us(struct timespec at) { return at.tv_sec * MILLION + at.tv_nsec / 1000; }

static long long told(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return us(now);
}

static long long truth(void)
{
	struct timespec now;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return us(now);
}

static int on_condition(pthread_cond_t *cond, clockid_t named, const struct timespec *until)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&mutex);
	int code = named < 0 ? pthread_cond_timedwait(cond, &mutex, until) : pthread_cond_clockwait(cond, &mutex, named, until);
	pthread_mutex_unlock(&mutex);
	return code;
}

static int cond_of_steady(clockid_t clock, const struct timespec *until)
{
	pthread_condattr_t how;
	pthread_cond_t cond;
	pthread_condattr_init(&how);
	pthread_condattr_setclock(&how, clock);
	pthread_cond_init(&cond, &how);
	int code = on_condition(&cond, -1, until);
	pthread_cond_destroy(&cond);
	return code;
}

static int cond_of_wall(clockid_t clock, const struct timespec *until)
{
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	return on_condition(&cond, -1, until);
}

static int cond_by_clock(clockid_t clock, const struct timespec *until)
{
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER; /* of the wall clock, but asked for another */
	return on_condition(&cond, clock, until);
}

static int semaphore(clockid_t clock, const struct timespec *until)
{
	sem_t sem;
	sem_init(&sem, 0, 0);
	int code = clock == CLOCK_REALTIME ? sem_timedwait(&sem, until) : sem_clockwait(&sem, clock, until);
	return code == 0 ? 0 : errno;
}

static int sleeps(clockid_t clock, const struct timespec *until)
{
	return clock_nanosleep(clock, TIMER_ABSTIME, until, 0) == 0 ? ETIMEDOUT : 0;
}

static int locks(clockid_t clock, const struct timespec *until)
{
	return clock == CLOCK_REALTIME ? pthread_mutex_timedlock(&taken, until) : pthread_mutex_clocklock(&taken, clock, until);
}

static int reads(clockid_t clock, const struct timespec *until)
{
	return clock == CLOCK_REALTIME ? pthread_rwlock_timedrdlock(&written, until) : pthread_rwlock_clockrdlock(&written, clock, until);
}

static int writes(clockid_t clock, const struct timespec *until)
{
	return clock == CLOCK_REALTIME ? pthread_rwlock_timedwrlock(&written, until) : pthread_rwlock_clockwrlock(&written, clock, until);
}

static struct {
	const char *name;
	clockid_t clock;
	int (*until)(clockid_t, const struct timespec *);
	long long truly, lied;
	int turns;
} waits[] = {
	{"cond_timedwait steady", CLOCK_MONOTONIC, cond_of_steady}, {"cond_timedwait wall", CLOCK_REALTIME, cond_of_wall},
	{"cond_clockwait steady", CLOCK_MONOTONIC, cond_by_clock}, {"sem_timedwait wall", CLOCK_REALTIME, semaphore},
	{"sem_clockwait steady", CLOCK_MONOTONIC, semaphore}, {"clock_nanosleep steady", CLOCK_MONOTONIC, sleeps},
	{"clock_nanosleep wall", CLOCK_REALTIME, sleeps}, {"mutex_clocklock steady", CLOCK_MONOTONIC, locks},
	{"mutex_timedlock wall", CLOCK_REALTIME, locks}, {"rwlock_clockrdlock steady", CLOCK_MONOTONIC, reads},
	{"rwlock_timedwrlock wall", CLOCK_REALTIME, writes}, {"rwlock_timedrdlock wall", CLOCK_REALTIME, reads},
	{"rwlock_clockwrlock steady", CLOCK_MONOTONIC, writes},
};
enum { WAITS = sizeof waits / sizeof *waits };

static void *one(void *which)
{
	long i = (long)which;
	/* The true time around the other: who is put aside between two looks has waited longer, and not shorter. */
	long long truly = truth(), lied = told(waits[i].clock), end = lied + wait_us;
	struct timespec until = {end / MILLION, end % MILLION * 1000};
	int turns = 1;
	while (waits[i].until(waits[i].clock, &until) != ETIMEDOUT)
		turns++;
	waits[i].lied = told(waits[i].clock) - lied;
	waits[i].truly = truth() - truly;
	waits[i].turns = turns;
	return 0;
}

int main(int count, char **given)
{
	char line[64];
	pthread_t threads[WAITS];
	wait_us = count > 1 ? atol(given[1]) * 1000 : 50000;
	pthread_mutex_lock(&taken);
	pthread_rwlock_wrlock(&written);
	puts("up");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		for (long i = 0; i < WAITS; i++)
			pthread_create(&threads[i], 0, one, (void *)i);
		for (long i = 0; i < WAITS; i++) {
			pthread_join(threads[i], 0);
			printf("%s\t%lld\t%lld\t%d\n", waits[i].name, waits[i].truly, waits[i].lied, waits[i].turns);
		}
		puts("over");
		fflush(stdout);
	}
	return 0;
}
