/* What a program outside of the tree does first: two ranks, one sum. */
#include <stdio.h>
#include <tributary.h>

enum { RANKS = 2, COUNT = 4 };

int main(void)
{
    float data[RANKS][COUNT] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    void *pointers[RANKS] = {data[0], data[1]};
    const void *sends[RANKS] = {data[0], data[1]};
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group;
    options.backend = "host";
    trib_status status = trib_group_create(&group, NULL, RANKS, &options);
    if (status == TRIB_OK)
        status = trib_group_allreduce(group, sends, pointers, COUNT, TRIB_F32, TRIB_SUM, NULL);
    for (int32_t rank = 0; rank < RANKS && status == TRIB_OK; rank++) {
        trib_device *device;
        status = trib_device_get(&device, "host", trib_group_device(group, rank));
        if (status == TRIB_OK)
            status = trib_stream_wait(device, NULL);
    }
    if (status != TRIB_OK) {
        fprintf(stderr, "%s: %s\n", trib_status_name(status), trib_last_detail());
        return 1;
    }
    trib_group_destroy(group);
    printf("tributary %u: backends", (unsigned)trib_version());
    for (int32_t i = 0; i < trib_backend_count(); i++)
        printf(" %s", trib_backend_name(i));
    printf("; 4 + 40 = %g\n", (double)data[1][3]);
    return data[0][0] == 11 && data[1][3] == 44 ? 0 : 1;
}
