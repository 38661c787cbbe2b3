/* Ranks that have a process each, as a launcher starts them: forks them, has them meet, and combines what
 * they measure.
 *
 * The program forks before it uses the library or CUDA, for neither works in the children of a process
 * that has. In each child it goes on with its own rank. Whatever is decided from what one rank has
 * seen is told to all, since all must make the same calls. */
#ifndef TRI_BENCHES_PROCESSES_H
#define TRI_BENCHES_PROCESSES_H

#include "benches/bench.h"

/* What `ask(argument)` returns in a child that ends with it, so that this process uses nothing that
 * its other children could not. If the child fails, so does the program. */
int bench_ask(int (*ask)(void *argument), void *argument);

/* Become `n` processes. Returns in each of them; the one that called waits for them and exits, with
 * success if all have. If one fails the others are killed, since they may wait for it for ever, and
 * so they are if the caller ends. The first one alone prints to stdout. */
void bench_split(int n);
/* The number of this one, from 0. */
int bench_process(void);
/* How many there are: 1 without bench_split. */
int bench_processes(void);

/* The exit status of a program that has come to its end. All processes agree on it, and the first one,
 * which has something to print before, says it for all. */
int bench_status(bool good);

/* End the program, for a reason that all processes have found alike: the first one says it. */
__attribute__((noreturn, format(printf, 1, 2))) void bench_refuse(const char *format, ...);

/* Where `threads` threads meet, which drive all ranks of all processes. */
struct bench_meeting *bench_meeting_open(int threads);
void bench_meeting_close(struct bench_meeting *meeting);

/* Until all threads that drive ranks have come. */
void bench_meet(const struct bench *bench);

/* Every process calls these, while no thread drives a rank. With one process they change nothing.
 * The most, or the least, over the processes of each value. */
void bench_most(const struct bench *bench, double *values, size_t n);
void bench_least(const struct bench *bench, double *values, size_t n);
/* Of a number below 2^53 of each process. */
size_t bench_sum(const struct bench *bench, size_t value);
/* What rank 0 has, for all; at most 128 bytes, or the program ends. */
void bench_tell(const struct bench *bench, void *data, size_t bytes);

#endif
