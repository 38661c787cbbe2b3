/* A process that a launcher has started: it meets the others, and writes launcher, number of ranks
 * and id to the file of its rank in a folder. With a backend it makes the communicator of the job,
 * and writes the sum of what all ranks have instead of the id. */
#include <stdio.h>
#include <stdlib.h>
#include <tributary.h>

static void need(trib_status status)
{
    if (status == TRIB_OK)
        return;
    fprintf(stderr, "%s\n", trib_last_detail());
    exit(EXIT_FAILURE);
}

static void write_id(FILE *file, const trib_job *job)
{
    trib_id id;
    need(trib_job_meet(&id, job, "host", 60000));
    for (size_t i = 0; i < sizeof id.bytes; i++)
        fprintf(file, "%02x", id.bytes[i]);
}

/* Rank r has 2^r: the sum says who took part. */
static void write_sum(FILE *file, const char *backend)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_device *device = NULL;
    trib_comm *comm = NULL;
    void *data = NULL;
    float value;
    options.backend = backend;
    options.timeout_ms = 60000;
    need(trib_comm_from_env(&comm, &options));
    value = (float)(1u << trib_comm_rank(comm));
    need(trib_device_get(&device, trib_comm_backend(comm), trib_comm_device(comm)));
    need(trib_device_alloc(&data, device, sizeof value));
    need(trib_device_copy(device, data, &value, sizeof value, NULL));
    need(trib_allreduce(comm, data, data, 1, TRIB_F32, TRIB_SUM, NULL));
    need(trib_comm_wait(comm, NULL, 60000));
    need(trib_device_copy(device, &value, data, sizeof value, NULL));
    need(trib_stream_wait(device, NULL));
    need(trib_device_free(device, data));
    need(trib_comm_destroy(comm));
    fprintf(file, "%g", (double)value);
}

int main(int argc, char **argv)
{
    char path[4096];
    trib_job job = TRIB_JOB_INIT;
    if (argc < 2)
        return EXIT_FAILURE;
    need(trib_job_read(&job));
    (void)snprintf(path, sizeof path, "%s/rank%d", argv[1], job.rank);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return EXIT_FAILURE;
    fprintf(file, "%s %d ", job.launcher, job.n_ranks);
    if (argc == 2)
        write_id(file, &job);
    else
        write_sum(file, argv[2]);
    return fclose(file) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
