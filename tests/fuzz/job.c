/* Fuzz target: the variables of a launcher, to their parser.
 *
 * The input is lines, each "NAME=value". A job that comes out is one that can meet. */
#include <stdlib.h>
#include <string.h>

#include "csrc/job/launcher.h"
#include "csrc/job/place.h"
#include "tests/fuzz/fuzz.h"

static const char *get(void *context, const char *name)
{
    const size_t n = strlen(name);
    for (const char *line = context; *line != '\0'; line += strlen(line) + 1)
        if (strncmp(line, name, n) == 0 && line[n] == '=')
            return line + n + 1;
    return NULL;
}

static void check_job(const trib_job *job)
{
    const struct tri_ports ports = tri_place_ports(job);
    FUZZ_CHECK(job->size == sizeof *job && job->reserved == 0 && job->launcher != NULL);
    FUZZ_CHECK(job->n_ranks >= 1 && job->n_ranks <= TRIB_JOB_RANKS_MAX);
    FUZZ_CHECK(job->rank >= 0 && job->rank < job->n_ranks);
    FUZZ_CHECK(job->local_rank >= 0 && job->local_rank < job->n_ranks);
    FUZZ_CHECK(job->port >= 0 && job->port <= UINT16_MAX);
    FUZZ_CHECK(memchr(job->host, '\0', sizeof job->host) != NULL);
    FUZZ_CHECK(job->n_ranks == 1 || tri_place_host_valid(job->host));
    FUZZ_CHECK(ports.first >= 1 && ports.first <= ports.last && ports.last <= UINT16_MAX);
}

/* The parts that take text, also where no valid job is around it. */
static void check_texts(const char *text)
{
    char host[TRIB_HOST_MAX + 1];
    int32_t port = 0;
    if (tri_place_parse(host, &port, text))
        FUZZ_CHECK(port >= 1 && port <= UINT16_MAX && tri_place_host_valid(host));
    if (tri_place_host_set(host, text))
        FUZZ_CHECK(tri_place_host_valid(host));
    if (tri_place_first(host, text))
        FUZZ_CHECK(tri_place_host_valid(host));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *lines = malloc(bytes + 2);
    if (lines == NULL)
        return 0;
    if (bytes > 0)
        memcpy(lines, data, bytes);
    lines[bytes] = lines[bytes + 1] = '\0';
    check_texts(lines);
    for (size_t i = 0; i < bytes; i++)
        if (lines[i] == '\n')
            lines[i] = '\0';
    const struct tri_variables variables = {get, lines};
    trib_job job = TRIB_JOB_INIT;
    if (tri_job_parse(&job, &variables) == TRIB_OK)
        check_job(&job);
    free(lines);
    return 0;
}
