/* What is wrong when a call does not end, in a sentence: who waits, for whom, and why. The recorders
 * are those of tri_watchdog_visit. */
#ifndef TRI_CORE_REPORT_H
#define TRI_CORE_REPORT_H

#include "csrc/core/communicator.h"

struct tri_report {
    char sentence[TRI_DETAIL_SIZE];
};

/* `call` of `comm` has not ended for `waited_ns`. */
void tri_report_timeout(struct tri_report *out, const struct tri_recorder *list,
                        const struct trib_comm *comm, const struct tri_recorded *call,
                        uint64_t waited_ns);

/* The same for the oldest call that has not ended; "" if every call has. */
void tri_report_wait(struct tri_report *out, const struct tri_recorder *list,
                     const struct trib_comm *comm, uint64_t waited_ns);

/* Log what has ended the communicator, and where each of its ranks in this process stands. */
void tri_report_ranks(const struct tri_recorder *list, const struct trib_comm *comm);

/* Would answers of the other ranks tell more about `call`? Not about a local call, nor a batch of
 * sends and receives, whose partners are not recorded. */
bool tri_report_asks(const struct tri_recorded *call);

/* The ranks that have not made `call`, which `comm` has entered, as far as is known, ascending: the
 * first `capacity` to `out`. Returns how many there are. None for a send or receive: the records do
 * not tell which call of its partner it pairs with. */
int32_t tri_report_missing(int32_t *out, int32_t capacity, const struct tri_recorder *list,
                           const struct trib_comm *comm, const struct tri_recorded *call);

/* The same for the ranks that have been asked about it and do not answer. */
int32_t tri_report_silent(int32_t *out, int32_t capacity, const struct trib_comm *comm,
                          const struct tri_recorded *call);

/* The call to name, and to ask the other ranks about, when not all have ended: the oldest. If only
 * one of several is known not to have ended, it is the last of these, because a rank that has not
 * made an earlier one has not made that one either. false if every call has ended. */
bool tri_report_pending(struct tri_recorded *out, const struct tri_recorder *recorder,
                        const struct tri_progress *progress);

#endif
