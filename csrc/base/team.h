/* A team of threads: each runs one part of what its owner has to do at the same time. */
#ifndef TRI_BASE_TEAM_H
#define TRI_BASE_TEAM_H

#include <stdint.h>

#include "csrc/base/status.h"

struct tri_team;

/* `size` parts; the first is the caller's thread, so size - 1 threads are started, which wait. */
trib_status tri_team_create(struct tri_team **out, int32_t size);
/* Call `function(part, argument)` for every part at once, and return when all have. One thread at a
 * time, and not from a part. */
void tri_team_run(struct tri_team *team, void (*function)(int32_t part, void *argument),
                  void *argument);
/* End the threads. NULL is allowed. */
void tri_team_destroy(struct tri_team *team);

#endif
