/* Ranks that others wait for and that are not there: those that have left, and those that are late.
 *
 * A rank has left when it has closed and all its submissions have run: it will come to nothing any
 * more. Whoever waits for it then stops the clique with TRIB_ERR_CLOSED, so that every rank hears of
 * it. Ranks that have made equally many calls never wait for one that has left. To know that a rank
 * does not come, look at `left` first and at what it should have done afterwards: what a rank has
 * done it did before it left. */
#ifndef TRI_HOST_ABSENT_H
#define TRI_HOST_ABSENT_H

#include <stdint.h>

#include "csrc/host/clique.h"

/* The rank has closed, or one more of its submissions has run: if both are at their end it has left,
 * and those who wait look again. */
void tri_absent_check(struct tri_transport *self);

/* The ranks that have left, bit 1 << rank for each. A load. */
uint64_t tri_absent_left(const struct tri_clique *clique);

/* Stop the clique: `self` waits for one of `gone`, which have left, in `call` (NULL: in a split). */
void tri_absent_stop(const struct tri_transport *self, uint64_t gone, const struct tri_call *call);

/* tri_eventcount_wait without a deadline; calls `late(context)` once if it takes long: 10 s, or what
 * tests set instead. */
void tri_absent_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                     void (*late)(void *context));
void tri_absent_set_patience(uint64_t ns);

/* A warning for the log: the ranks of `missing` have not yet done what `call` of `self` waits for. */
void tri_absent_log(const struct tri_transport *self, const struct tri_call *call,
                    uint64_t missing, const char *done);

#endif
