/* The public functions that begin with what a launcher says; pointers that must not be NULL are not
 * NULL. */
#ifndef TRI_JOB_MEET_H
#define TRI_JOB_MEET_H

#include "csrc/base/status.h"

trib_status tri_job_read(trib_job *out);
trib_status tri_job_meet(trib_id *out, const trib_job *job, const char *backend,
                         uint32_t timeout_ms);
trib_status tri_comm_from_env(trib_comm **out, const trib_options *options);

#endif
