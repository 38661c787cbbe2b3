/* The fake's push: member `push` of a table of kernels. */
#ifndef TRI_TESTS_NCCL_FAKE_PUSH_H
#define TRI_TESTS_NCCL_FAKE_PUSH_H

#include "kernels/push.h"

trib_status fake_push(const struct tri_push *job, trib_stream stream);

/* Calls that all ranks have made, captured ones as often as they were launched; and the parts of
 * ranks that were launched or captured. */
long fake_pushes(void);
long fake_push_launches(void);
/* Of the newest call that all ranks have made. */
enum tri_push_kind fake_push_kind(void);

/* From now on what a rank stores in another one's memory is lost, or the last rank has a wrong result, or what
 * fake_lose_part says is lost. Who has no patience for ever gives up at once. */
enum fake_pushing { FAKE_PUSH_WORKS, FAKE_PUSH_LOSES, FAKE_PUSH_GARBLES, FAKE_PUSH_LOSES_PART };
void fake_push_as(enum fake_pushing how);
/* The last of these, from now on: of the calls behind the next `n`, what rank `from` sends to rank `to` does not
 * arrive, and all else does. */
void fake_lose_part(int from, int to, long n);

/* From now on ranks have a `part` of the patience that they should have; 1: all of it. */
void fake_hurry(uint64_t part);

/* Of the launches from now on, number `n` (0 is the next) fails; -1: none. */
void fake_fail_push(long n);

#endif
