/* The thread that queries the events of marks, because a query may wait for a device. */
#ifndef TRI_NCCL_PROBER_H
#define TRI_NCCL_PROBER_H

#include "csrc/nccl/marks.h"

/* Probe `marks` from now on, whenever asked. Fails if the thread cannot be started. */
trib_status tri_nccl_prober_add(struct tri_nccl_marks *marks);
/* Once this has returned, the prober no longer uses `marks`. Waits for a probe of them, which may
 * wait for the device. Idempotent. */
void tri_nccl_prober_remove(struct tri_nccl_marks *marks);

/* Probe all marks once more. Never waits. */
void tri_nccl_prober_ask(void);

#endif
