/* The side of a meeting that looks for rank 0 and asks it for the id. */
#ifndef TRI_JOB_ASK_H
#define TRI_JOB_ASK_H

#include <stdbool.h>

#include "csrc/job/terms.h"

/* Every rank but 0. The statuses of trib_job_meet. The caller has retained the service, and does not
 * hold its lock. */
trib_status tri_ask(trib_id *out, const struct tri_terms *terms);

/* Rank 0, which finds `port` of its host taken: is that another rank 0 of this job? Then this
 * thread's detail names it. The caller holds the lock of the service, which is released meanwhile. */
bool tri_ask_other(const struct tri_terms *terms, uint16_t port);

#endif
