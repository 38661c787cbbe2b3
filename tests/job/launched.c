/* A process that a launcher has started: it meets the others, and writes launcher, number of ranks
 * and id to the file of its rank. */
#include <stdio.h>
#include <stdlib.h>
#include <tributary.h>

int main(int argc, char **argv)
{
    char path[4096];
    trib_job job = TRIB_JOB_INIT;
    trib_id id;
    if (argc != 2)
        return EXIT_FAILURE;
    if (trib_job_read(&job) != TRIB_OK || trib_job_meet(&id, &job, "host", 60000) != TRIB_OK) {
        fprintf(stderr, "%s\n", trib_last_detail());
        return EXIT_FAILURE;
    }
    (void)snprintf(path, sizeof path, "%s/rank%d", argv[1], job.rank);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return EXIT_FAILURE;
    fprintf(file, "%s %d ", job.launcher, job.n_ranks);
    for (size_t i = 0; i < sizeof id.bytes; i++)
        fprintf(file, "%02x", id.bytes[i]);
    return fclose(file) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
