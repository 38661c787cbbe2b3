/* Where rank 0 listens. */
#ifndef TRI_JOB_LISTEN_H
#define TRI_JOB_LISTEN_H

#include "csrc/job/terms.h"

/* At the first of the job's ports that is free: a socket that listens. TRIB_ERR_SYSTEM: none is, nor
 * becomes so within some seconds. TRIB_ERR_INVALID_USAGE: another rank 0 of this job has one; the
 * detail names it. The caller holds the lock of the service, which is released meanwhile. */
trib_status tri_listen(int *out_fd, int32_t *out_port, const struct tri_terms *terms);

#endif
