/* Memory of a GPU that cuMemMap has mapped, in two parts, one behind the other. After the first communicator. */
#ifndef TRI_TESTS_PULL_MAPPED_H
#define TRI_TESTS_PULL_MAPPED_H

#include <cuda.h>
#include <stddef.h>

enum { MAPPED_PARTS = 2 };

struct mapped {
    CUdeviceptr start;
    size_t part; /* bytes of one */
    CUmemGenericAllocationHandle parts[MAPPED_PARTS];
};

/* At least `bytes` bytes of device `device`, which is current: half of them and more in the first part, and the
 * others in the second, unless the driver maps more at once. The first `open` parts are for all of `devices`
 * devices, and the others for that one alone. */
void *mapped_make(struct mapped *out, int device, int devices, size_t bytes, int open);
void mapped_free(struct mapped *mapped);

#endif
