/* What the launcher says of this process, in its variables. */
#ifndef TRI_JOB_LAUNCHER_H
#define TRI_JOB_LAUNCHER_H

#include "csrc/job/variables.h"

/* Fill `*out` as trib_job_read does; tests/fuzz/job.c fuzzes it. out->size is set. */
trib_status tri_job_parse(trib_job *out, const struct tri_variables *variables);

#endif
