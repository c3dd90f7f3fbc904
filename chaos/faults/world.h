/* What the parts of the library share (world.c says what it is for). Nothing of this can be seen by the process. */
#ifndef CHAOS_WORLD_H
#define CHAOS_WORLD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <sys/types.h>

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
void find_clocks(void);

#pragma GCC visibility pop
#endif
