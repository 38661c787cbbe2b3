/* What both sides of a meeting have of it. */
#ifndef TRI_JOB_TERMS_H
#define TRI_JOB_TERMS_H

#include "csrc/base/status.h"
#include "csrc/peers/mac.h"

struct tri_terms {
    const trib_job *job;
    uint8_t key[TRI_MAC_KEY]; /* of those who know the job's token and secret */
    uint64_t deadline_ns;
    uint32_t timeout_ms; /* for messages */
};

#endif
