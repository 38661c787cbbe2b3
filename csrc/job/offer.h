/* Rank 0's side of a meeting: it listens, and hands every rank the id once all have come. */
#ifndef TRI_JOB_OFFER_H
#define TRI_JOB_OFFER_H

#include "csrc/job/terms.h"

/* The statuses of trib_job_meet. The caller has retained the service, and does not hold its lock. */
trib_status tri_offer(const trib_id *id, const struct tri_terms *terms);

#endif
