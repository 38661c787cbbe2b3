/* What a launcher's variables say: each launcher, each variable that is missing or wrong, and the
 * texts among them. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/job/launcher.h"
#include "csrc/job/place.h"
#include "tests/check.h"

enum { SET = 12 };

/* "NAME=value", as in an environment. */
static const char *get(void *context, const char *name)
{
    const size_t n = strlen(name);
    for (const char *const *set = context; *set != NULL; set++)
        if (strncmp(*set, name, n) == 0 && (*set)[n] == '=')
            return *set + n + 1;
    return NULL;
}

static trib_status parse(trib_job *out, const char *const *set)
{
    const struct tri_variables variables = {get, (void *)(uintptr_t)set};
    *out = (trib_job)TRIB_JOB_INIT;
    return tri_job_parse(out, &variables);
}

/* ------------------------------------------------------------------------------------------ valid */

static const struct {
    const char *what;
    const char *set[SET];
    const char *launcher, *host;
    int32_t rank, n_ranks, local_rank, port;
} valid[] = {
    {"torchrun",
     {"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node1", "MASTER_PORT=29500",
      "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_USE_AGENT_STORE=True"},
     "torchrun",
     "node1",
     5,
     8,
     1,
     0},
    {"torchrun, one rank without a place",
     {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0"},
     "torchrun",
     "",
     0,
     1,
     0,
     0},
    {"torchrun inside SLURM",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=fd00::2", "MASTER_PORT=65535",
      "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_LOCALID=0"},
     "torchrun",
     "fd00::2",
     1,
     2,
     1,
     0},
    {"Open MPI on one host",
     {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=3",
      "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=602734593"},
     "openmpi",
     "127.0.0.1",
     3,
     4,
     3,
     0},
    {"Open MPI on several hosts",
     {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "TRIBUTARY_ADDRESS=[fd00::2]:7000"},
     "openmpi",
     "fd00::2",
     3,
     4,
     1,
     7000},
    {"mpirun inside SLURM, with its master",
     {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_LOCALID=0", "OMPI_COMM_WORLD_RANK=1",
      "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=1"},
     "openmpi",
     "a",
     1,
     2,
     0,
     0},
    {"Hydra",
     {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "PMI_FD=8",
      "MASTER_ADDR=a.b", "MASTER_PORT=29500"},
     "mpich",
     "a.b",
     1,
     2,
     1,
     0},
    {"PALS",
     {"PMI_RANK=6", "PMI_SIZE=8", "PMI_LOCAL_RANK=2", "TRIBUTARY_ADDRESS=x1:65535"},
     "mpich",
     "x1",
     6,
     8,
     2,
     65535},
    {"srun",
     {"SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3", "SLURM_LOCALID=0", "SLURM_NTASKS=9",
      "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=a[07-09,12],b",
      "SLURM_JOB_NODELIST=a[01-12],b", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1"},
     "slurm",
     "a07",
     2,
     3,
     0,
     0},
    {"srun with PMI",
     {"PMI_RANK=2", "PMI_SIZE=3", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3", "SLURM_LOCALID=1",
      "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=c"},
     "slurm",
     "c",
     2,
     3,
     1,
     0},
    {"the address comes before the master, and needs no names of the job",
     {"SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=3", "SLURM_LOCALID=0", "MASTER_ADDR=a",
      "MASTER_PORT=9", "TRIBUTARY_ADDRESS=b:10"},
     "slurm",
     "b",
     2,
     3,
     0,
     10},
    {"a launcher by its name",
     {"TRIBUTARY_LAUNCHER=slurm", "RANK=9", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1",
      "SLURM_LOCALID=0"},
     "slurm",
     "",
     0,
     1,
     0,
     0},
    {"empty is not set",
     {"RANK=", "PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALRANKID=0"},
     "mpich",
     "",
     0,
     1,
     0,
     0},
    {"an IPv6 address in brackets",
     {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=[fd00::2]", "MASTER_PORT=1"},
     "torchrun",
     "fd00::2",
     1,
     2,
     1,
     0},
    {"the most ranks",
     {"RANK=65535", "WORLD_SIZE=65536", "LOCAL_RANK=65535", "MASTER_ADDR=a", "MASTER_PORT=1"},
     "torchrun",
     "a",
     65535,
     65536,
     65535,
     0},
};

static void check_valid(void)
{
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++) {
        trib_job job;
        check_begin("%s", valid[i].what);
        CHECK_OK(parse(&job, valid[i].set));
        CHECK(job.launcher != NULL && strcmp(job.launcher, valid[i].launcher) == 0);
        CHECK_MSG(strcmp(job.host, valid[i].host) == 0, "\"%s\"", job.host);
        CHECK(job.size == sizeof job && job.reserved == 0 && job.port == valid[i].port);
        CHECK(job.rank == valid[i].rank && job.n_ranks == valid[i].n_ranks);
        CHECK(job.local_rank == valid[i].local_rank);
        check_end();
    }
}

/* ---------------------------------------------------------------------------------------- mistakes */

static const struct {
    const char *set[SET];
    trib_status status;
    const char *words;
} wrong[] = {
    {{NULL}, TRIB_ERR_INVALID_USAGE, "none of RANK (torchrun)"},
    {{"WORLD_SIZE=2"}, TRIB_ERR_INVALID_USAGE, "no launcher has started this process"},
    {{"RANK=0"}, TRIB_ERR_INVALID_USAGE, "WORLD_SIZE is not set, and a process that torchrun"},
    {{"RANK=0", "WORLD_SIZE=2"}, TRIB_ERR_INVALID_USAGE, "LOCAL_RANK is not set"},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0"}, TRIB_ERR_INVALID_USAGE, "MASTER_ADDR is not set"},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a"},
     TRIB_ERR_INVALID_USAGE,
     "MASTER_PORT is not set"},
    {{"RANK=2", "WORLD_SIZE=2", "LOCAL_RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "RANK (torchrun) is \"2\"; expected a number from 0 to 1"},
    {{"RANK=-1", "WORLD_SIZE=2", "LOCAL_RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "RANK (torchrun) is \"-1\""},
    {{"RANK=0", "WORLD_SIZE=0", "LOCAL_RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "WORLD_SIZE (torchrun) is \"0\"; expected a number from 1 to 65536"},
    {{"RANK=0", "WORLD_SIZE=65537", "LOCAL_RANK=0"}, TRIB_ERR_INVALID_ARGUMENT, "\"65537\""},
    {{"RANK=0", "WORLD_SIZE=4294967298", "LOCAL_RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "\"4294967298\""},
    {{"RANK=0", "WORLD_SIZE=18446744073709551618", "LOCAL_RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "\"18446744073709551618\""},
    {{"RANK=0", "WORLD_SIZE= 2", "LOCAL_RANK=0"}, TRIB_ERR_INVALID_ARGUMENT, "\" 2\""},
    {{"RANK=0", "WORLD_SIZE=2x", "LOCAL_RANK=0"}, TRIB_ERR_INVALID_ARGUMENT, "\"2x\""},
    {{"RANK=0", "WORLD_SIZE=2\n", "LOCAL_RANK=0"}, TRIB_ERR_INVALID_ARGUMENT, "\"2?\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2"},
     TRIB_ERR_INVALID_ARGUMENT,
     "LOCAL_RANK (torchrun) is \"2\"; expected a number from 0 to 1"},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a b", "MASTER_PORT=1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_ADDR is \"a b\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a:29500", "MASTER_PORT=1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_ADDR is \"a:29500\"; expected a name or an address that all hosts know, without a "
     "port"},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=tcp://a", "MASTER_PORT=1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_ADDR is \"tcp://a\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=fe80::1%eth0", "MASTER_PORT=1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_ADDR is \"fe80::1%eth0\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=[fd00::2]:1", "MASTER_PORT=1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_ADDR is \"[fd00::2]:1\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_PORT (torchrun) is \"0\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=65536"},
     TRIB_ERR_INVALID_ARGUMENT,
     "MASTER_PORT (torchrun) is \"65536\""},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "TRIBUTARY_ADDRESS=a"},
     TRIB_ERR_INVALID_ARGUMENT,
     "TRIBUTARY_ADDRESS is \"a\"; expected host:port or [IPv6]:port"},
    {{"OMPI_COMM_WORLD_RANK=0"}, TRIB_ERR_INVALID_USAGE, "OMPI_COMM_WORLD_SIZE is not set"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"},
     TRIB_ERR_INVALID_USAGE,
     "OMPI_COMM_WORLD_LOCAL_RANK is not set"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=1"},
     TRIB_ERR_INVALID_USAGE,
     "openmpi does not say where rank 0 is: set TRIBUTARY_ADDRESS"},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     TRIB_ERR_INVALID_USAGE,
     "PMIX_NAMESPACE is not set"},
    {{"PMI_RANK=0"}, TRIB_ERR_INVALID_USAGE, "PMI_SIZE is not set"},
    {{"PMI_RANK=0", "PMI_SIZE=2"}, TRIB_ERR_INVALID_USAGE, "MPI_LOCALRANKID is not set"},
    {{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0"},
     TRIB_ERR_INVALID_USAGE,
     "mpich does not say where rank 0 is"},
    {{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MASTER_ADDR=a"},
     TRIB_ERR_INVALID_USAGE,
     "MASTER_PORT is not set"},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=2"},
     TRIB_ERR_INVALID_USAGE,
     "SLURM_STEP_NUM_TASKS is not set"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"},
     TRIB_ERR_INVALID_USAGE,
     "SLURM_LOCALID is not set"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_ID=1",
      "SLURM_STEP_ID=0"},
     TRIB_ERR_INVALID_USAGE,
     "SLURM_STEP_NODELIST is not set"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_ID=1",
      "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=a[1"},
     TRIB_ERR_INVALID_ARGUMENT,
     "SLURM_JOB_NODELIST is \"a[1\"; expected a list of hosts"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_NODELIST=a",
      "SLURM_STEP_ID=0"},
     TRIB_ERR_INVALID_USAGE,
     "SLURM_JOB_ID is not set"},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_NODELIST=a",
      "SLURM_JOB_ID=1"},
     TRIB_ERR_INVALID_USAGE,
     "SLURM_STEP_ID is not set"},
    {{"TRIBUTARY_LAUNCHER=lsf", "RANK=0"},
     TRIB_ERR_INVALID_ARGUMENT,
     "TRIBUTARY_LAUNCHER is \"lsf\"; expected torchrun, openmpi, mpich or slurm"},
    {{"TRIBUTARY_LAUNCHER=mpich", "RANK=0", "PMI_SIZE=1"},
     TRIB_ERR_INVALID_USAGE,
     "PMI_RANK is not set"},
};

static void check_wrong(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trib_job job, before = TRIB_JOB_INIT;
        check_begin("refused: %s", wrong[i].words);
        CHECK_STATUS(parse(&job, wrong[i].set), wrong[i].status);
        CHECK_DETAIL("trib_job_read: ");
        CHECK_DETAIL(wrong[i].words);
        CHECK(memcmp(&job, &before, sizeof job) == 0);
        check_end();
    }
}

/* ------------------------------------------------------------------------------------------ tokens */

#define SRUN "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_NODELIST=a"

static uint64_t token_of(const char *const *set)
{
    trib_job job;
    CHECK_OK(parse(&job, set));
    return job.token;
}

static void check_tokens(void)
{
    static const char *const jobs[][SET] = {
        {SRUN, "SLURM_JOB_ID=1", "SLURM_STEP_ID=23"},
        {SRUN, "SLURM_JOB_ID=12", "SLURM_STEP_ID=3"},
        {SRUN, "SLURM_JOB_ID=1", "SLURM_STEP_ID=24"},
        {SRUN, "SLURM_JOB_ID=1", "SLURM_STEP_ID=23", "MASTER_ADDR=a", "MASTER_PORT=1"},
        {SRUN, "SLURM_JOB_ID=1", "SLURM_STEP_ID=23", "MASTER_ADDR=a", "MASTER_PORT=2"},
        {SRUN, "SLURM_JOB_ID=1", "SLURM_STEP_ID=23", "MASTER_ADDR=b", "MASTER_PORT=2"},
    };
    enum { JOBS = sizeof jobs / sizeof *jobs };
    static const char *const rank_1[SET] = {"SLURM_PROCID=1",  "SLURM_STEP_NUM_TASKS=2",
                                            "SLURM_LOCALID=1", "SLURM_JOB_NODELIST=a",
                                            "SLURM_JOB_ID=1",  "SLURM_STEP_ID=23"};
    check_begin("a job has one token, and different ones have different tokens");
    CHECK(token_of(jobs[0]) == token_of(rank_1));
    for (int a = 0; a < JOBS; a++)
        for (int b = 0; b < a; b++)
            CHECK_MSG(token_of(jobs[a]) != token_of(jobs[b]), "%d and %d", a, b);
    check_end();
}

static void check_ports(void)
{
    trib_job job = TRIB_JOB_INIT;
    int32_t lowest = UINT16_MAX, highest = 0;
    check_begin("ports");
    job.port = 7;
    CHECK(tri_place_ports(&job).first == 7 && tri_place_ports(&job).last == 7);
    job.port = 0;
    for (job.token = 0; job.token < 5000; job.token++) {
        const struct tri_ports ports = tri_place_ports(&job);
        CHECK(ports.last == ports.first + 3 && ports.first % 4 == 0);
        lowest = ports.first < lowest ? ports.first : lowest;
        highest = ports.last > highest ? ports.last : highest;
    }
    CHECK_MSG(lowest == 61000 && highest == 65479, "%d to %d", lowest, highest);
    job.token = UINT64_MAX;
    CHECK(tri_place_ports(&job).first >= 61000 && tri_place_ports(&job).last <= 65479);
    check_end();
}

/* ------------------------------------------------------------------------------------------- texts */

static void check_lists(void)
{
    static const char *const lists[][2] = {{"a", "a"},
                                           {"a,b", "a"},
                                           {"a[7,9-12],b3", "a7"},
                                           {"a[007-9]", "a007"},
                                           {"a-b[1-2]c", "a-b1c"},
                                           {"r[0-1]n[04-05].x,b", "r0n04.x"},
                                           {"n[3]", "n3"},
                                           {"a[1-2,5]b[6],c", "a1b6"}};
    static const char *const bad[] = {"",      ",a",  "a[",  "a[1",   "a[]", "a[x]",  "a[1x]",
                                      "a[-2]", "a b", "a\n", "a\x7f", "a]",  "(null)"};
    char host[TRIB_HOST_MAX + 1], longest[2 * TRIB_HOST_MAX];
    check_begin("lists of hosts");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        CHECK_MSG(tri_place_first(host, lists[i][0]) && strcmp(host, lists[i][1]) == 0, "%s: %s",
                  lists[i][0], host);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!tri_place_first(host, bad[i]), "%s", bad[i]);
    memset(longest, 'a', sizeof longest);
    longest[TRIB_HOST_MAX] = '\0';
    CHECK(tri_place_first(host, longest) && strlen(host) == TRIB_HOST_MAX);
    memcpy(longest + TRIB_HOST_MAX - 1, "[12]", 5);
    CHECK(!tri_place_first(host, longest));
    memcpy(longest + TRIB_HOST_MAX - 1, "[1]b", 5);
    CHECK(!tri_place_first(host, longest));
    memcpy(longest + TRIB_HOST_MAX - 1, "[1]", 4);
    CHECK(tri_place_first(host, longest) && strlen(host) == TRIB_HOST_MAX);
    check_end();
}

static void check_addresses(void)
{
    static const char *const bad[] = {
        "",     "a",    "a:",   ":1",   "a:0", "a:65536", "a:65537", "a:1x",      "a:-1",
        "a: 1", "[a:1", "[]:1", "[a]1", "::1", "a b:1",   "a:1:2",   "[fd00::2]", "a:99999999999"};
    char host[TRIB_HOST_MAX + 1], longest[2 * TRIB_HOST_MAX];
    int32_t port = 0;
    check_begin("host:port");
    CHECK(tri_place_parse(host, &port, "a.b:1") && strcmp(host, "a.b") == 0 && port == 1);
    CHECK(tri_place_parse(host, &port, "[::1]:65535") && strcmp(host, "::1") == 0 && port == 65535);
    CHECK(tri_place_parse(host, &port, "[10.0.0.1]:08") && strcmp(host, "10.0.0.1") == 0 &&
          port == 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!tri_place_parse(host, &port, bad[i]), "%s", bad[i]);
    memset(longest, 'a', sizeof longest);
    memcpy(longest + TRIB_HOST_MAX, ":1", 3);
    CHECK(tri_place_parse(host, &port, longest) && strlen(host) == TRIB_HOST_MAX);
    memcpy(longest + TRIB_HOST_MAX, "a:1", 4);
    CHECK(!tri_place_parse(host, &port, longest));
    check_end();
}

/* What the system knows of a host, as an error names it. */
static void check_found(void)
{
    struct tri_peer_address found = {.tcp_count = 1,
                                     .tcp = {{.family = 4, .bytes = {10, 0, 0, 7}}}};
    check_begin("addresses and ports in words");
    CHECK(strcmp(tri_place_addresses(&found, "a").text, " (10.0.0.7)") == 0);
    CHECK(strcmp(tri_place_addresses(&found, "10.0.0.7").text, "") == 0);
    found.tcp[1] = (struct tri_peer_tcp){.family = 6, .bytes = {[0] = 0xfd, [15] = 2}};
    found.tcp_count = 2;
    CHECK(strcmp(tri_place_addresses(&found, "a").text, " (10.0.0.7, fd00::2)") == 0);
    memset(found.tcp, 0x88, sizeof found.tcp);
    for (int i = 0; i < TRI_PEER_TCP_MAX; i++)
        found.tcp[i].family = 6;
    found.tcp_count = TRI_PEER_TCP_MAX; /* of the longest */
    CHECK(strlen(tri_place_addresses(&found, "a").text) == 3 + 4 * 39 + 3 * 2);
    found.tcp_count = 0;
    CHECK(strcmp(tri_place_addresses(&found, "a").text, "") == 0);
    CHECK(strcmp(tri_ports_text((struct tri_ports){7, 7}).text, "port 7") == 0);
    CHECK(strcmp(tri_ports_text((struct tri_ports){61000, 61003}).text, "ports 61000 to 61003") ==
          0);
    check_end();
}

static void check_own(void)
{
    trib_job job = TRIB_JOB_INIT;
    check_begin("the environment of this process");
    CHECK(setenv("TRIBUTARY_LAUNCHER", "mpich", 1) == 0 && setenv("PMI_RANK", "1", 1) == 0);
    CHECK(setenv("PMI_SIZE", "2", 1) == 0 && setenv("MPI_LOCALRANKID", "1", 1) == 0);
    CHECK(setenv("TRIBUTARY_ADDRESS", "a:1", 1) == 0);
    CHECK_OK(trib_job_read(&job));
    CHECK(job.rank == 1 && job.n_ranks == 2 && job.port == 1 && strcmp(job.host, "a") == 0);
    job.size--;
    CHECK_STATUS(trib_job_read(&job), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("start from TRIB_JOB_INIT");
    CHECK_STATUS(trib_job_read(NULL), TRIB_ERR_INVALID_ARGUMENT);
    check_end();
}

int main(void)
{
    check_valid();
    check_wrong();
    check_tokens();
    check_ports();
    check_lists();
    check_addresses();
    check_found();
    check_own();
    return check_finish("launcher_test");
}
