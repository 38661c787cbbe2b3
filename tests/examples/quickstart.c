/* Two ranks of this process sum their arrays. */
#include <stdio.h>
#include <tributary.h>

int main(void)
{
    float data[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    const void *send[2] = {data[0], data[1]};
    void *recv[2] = {data[0], data[1]}; /* in place */
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group;
    trib_device *device;

    options.backend = "host"; /* the same on "nccl", with memory and streams of GPUs */
    if (trib_group_create(&group, NULL, 2, &options) != TRIB_OK ||
        trib_group_allreduce(group, send, recv, 4, TRIB_F32, TRIB_SUM, NULL) != TRIB_OK) {
        fprintf(stderr, "%s\n", trib_last_detail());
        return 1;
    }
    for (int rank = 0; rank < 2; rank++) { /* it is queued: wait for each rank's default stream */
        if (trib_device_get(&device, "host", rank) != TRIB_OK ||
            trib_stream_wait(device, NULL) != TRIB_OK || trib_group_status(group) != TRIB_OK) {
            fprintf(stderr, "%s\n", trib_last_detail());
            return 1;
        }
        printf("rank %d: %g %g %g %g\n", rank, data[rank][0], data[rank][1], data[rank][2],
               data[rank][3]);
    }
    return trib_group_destroy(group) != TRIB_OK;
}
