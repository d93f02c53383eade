/* A wrong clock for one node: every program there has this loaded first (ld.so(8), /etc/ld.so.preload). */
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef AHEAD_S
#define AHEAD_S 120
#endif

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += AHEAD_S;
  return failed;
}

time_t time(time_t *where) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where) *where = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}
