/* What the launcher says of this process, in its variables.
 *
 * Found in: torch/distributed/elastic/agent/server/local_elastic_agent.py (_start_workers); srun(1),
 * "output environment variables"; the environments under Open MPI 4.1 and Hydra 4.0. Hydra gives
 * nothing that names the job. torchrun's TORCHELASTIC_RESTART_COUNT does not count: each node has
 * its own. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/job/launcher.h"

#include <string.h>

#include "csrc/job/place.h"

enum { LOCAL_NAMES = 2, ID_NAMES = 2, HOST_NAMES = 2 };

struct launcher {
    const char *name;
    const char *rank, *n_ranks, *local_rank[LOCAL_NAMES]; /* variables; of several, the first set */
    const char *ids[ID_NAMES];                            /* what names the job */
    bool ids_needed;                                      /* where no port is given */
    const char *hosts[HOST_NAMES];                        /* lists; the first set */
    const char *on_this_host;                             /* number of ranks there */
};

/* In the order in which they are looked for. */
static const struct launcher launchers[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .n_ranks = "WORLD_SIZE",
     .local_rank = {"LOCAL_RANK"},
     .ids = {"TORCHELASTIC_RUN_ID"}},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .n_ranks = "OMPI_COMM_WORLD_SIZE",
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .ids = {"PMIX_NAMESPACE"},
     .ids_needed = true,
     .on_this_host = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.name = "mpich",
     .rank = "PMI_RANK",
     .n_ranks = "PMI_SIZE",
     .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .n_ranks = "SLURM_STEP_NUM_TASKS",
     .local_rank = {"SLURM_LOCALID"},
     .ids = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .ids_needed = true,
     .hosts = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers, MPICH = 2, SLURM = 3 };

/* The first of `n` variables that is set; if none is, the first. */
static const char *first_set(const struct tri_variables *variables, const char *const *names, int n)
{
    for (int i = 0; i < n && names[i] != NULL; i++)
        if (tri_variable(variables, names[i]) != NULL)
            return names[i];
    return names[0];
}

/* --------------------------------------------------------------------------------- which launcher */

static trib_status named(const struct launcher **out, const char *name)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        if (strcmp(launchers[i].name, name) == 0) {
            *out = &launchers[i];
            return TRIB_OK;
        }
    }
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "trib_job_read: the variable TRIBUTARY_LAUNCHER is \"%s\"; expected torchrun, "
                    "openmpi, mpich or slurm",
                    tri_variable_text(name).text);
}

static trib_status find_launcher(const struct launcher **out, const struct tri_variables *variables)
{
    const char *name = tri_variable(variables, "TRIBUTARY_LAUNCHER");
    if (name != NULL)
        return named(out, name);
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *local = first_set(variables, launchers[i].local_rank, LOCAL_NAMES);
        const bool pmi_of_slurm = i == MPICH && tri_variable(variables, local) == NULL &&
                                  tri_variable(variables, launchers[SLURM].rank) != NULL;
        if (tri_variable(variables, launchers[i].rank) != NULL && !pmi_of_slurm) {
            *out = &launchers[i];
            return TRIB_OK;
        }
    }
    return tri_fail(TRIB_ERR_INVALID_USAGE,
                    "trib_job_read: no launcher has started this process: none of RANK (torchrun), "
                    "OMPI_COMM_WORLD_RANK (Open MPI), PMI_RANK (MPICH, Intel MPI) and SLURM_PROCID "
                    "(srun) is set; start it with one of these, or fill a trib_job");
}

/* --------------------------------------------------------------------------------- where they meet */

static trib_status bad_host(const char *variable, const char *value, const char *expected)
{
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "trib_job_read: the variable %s is \"%s\"; expected %s", variable,
                    tri_variable_text(value).text, expected);
}

static trib_status read_master(trib_job *out, const struct tri_variables *variables,
                               const struct launcher *launcher)
{
    int32_t port;
    const char *host;
    TRI_TRY(tri_variable_need(&host, variables, launcher->name, "MASTER_ADDR"));
    TRI_TRY(tri_variable_number(&port, variables, launcher->name, "MASTER_PORT", 1, UINT16_MAX));
    if (tri_place_host_set(out->host, host))
        return TRIB_OK;
    return bad_host("MASTER_ADDR", host,
                    "a name or an address that all hosts know, without a port");
}

/* Are all ranks on this host, as the launcher says? */
static bool on_one_host(const trib_job *job, const struct tri_variables *variables,
                        const struct launcher *launcher)
{
    int32_t here;
    return launcher->on_this_host != NULL &&
           tri_variable(variables, launcher->on_this_host) != NULL &&
           tri_variable_number(&here, variables, launcher->name, launcher->on_this_host, 1,
                               TRIB_JOB_RANKS_MAX) == TRIB_OK &&
           here == job->n_ranks;
}

static trib_status read_own_place(trib_job *out, const struct tri_variables *variables,
                                  const struct launcher *launcher)
{
    const char *list = NULL;
    if (launcher->hosts[0] != NULL) {
        const char *name = first_set(variables, launcher->hosts, HOST_NAMES);
        TRI_TRY(tri_variable_need(&list, variables, launcher->name, name));
        return tri_place_first(out->host, list) ? TRIB_OK : bad_host(name, list, "a list of hosts");
    }
    if (on_one_host(out, variables, launcher)) {
        memcpy(out->host, "127.0.0.1", sizeof "127.0.0.1");
        return TRIB_OK;
    }
    return tri_fail(TRIB_ERR_INVALID_USAGE,
                    "trib_job_read: %s does not say where rank 0 is: set TRIBUTARY_ADDRESS to "
                    "host:port, or MASTER_ADDR and MASTER_PORT, the same for all ranks",
                    launcher->name);
}

static trib_status read_place(trib_job *out, const struct tri_variables *variables,
                              const struct launcher *launcher)
{
    const char *address = tri_variable(variables, "TRIBUTARY_ADDRESS");
    if (address != NULL)
        return tri_place_parse(out->host, &out->port, address)
                   ? TRIB_OK
                   : bad_host("TRIBUTARY_ADDRESS", address, "host:port or [IPv6]:port");
    if (launcher == &launchers[0] || tri_variable(variables, "MASTER_ADDR") != NULL)
        return read_master(out, variables, launcher);
    return read_own_place(out, variables, launcher);
}

/* Needs the place. */
static trib_status read_token(trib_job *out, const struct tri_variables *variables,
                              const struct launcher *launcher)
{
    const char *texts[ID_NAMES + 4] = {launcher->name};
    const bool own = out->port == 0 && tri_variable(variables, "MASTER_ADDR") == NULL;
    int n = 1;
    for (int i = 0; i < ID_NAMES && launcher->ids[i] != NULL; i++) {
        const char *id = tri_variable(variables, launcher->ids[i]);
        if (id == NULL && launcher->ids_needed && own)
            TRI_TRY(tri_variable_need(&id, variables, launcher->name, launcher->ids[i]));
        texts[n++] = id == NULL ? "" : id;
    }
    for (int i = 0; i < 2; i++) {
        const char *master = tri_variable(variables, i == 0 ? "MASTER_ADDR" : "MASTER_PORT");
        texts[n++] = master == NULL ? "" : master;
    }
    out->token = tri_place_token(texts);
    return TRIB_OK;
}

trib_status tri_job_parse(trib_job *out, const struct tri_variables *variables)
{
    const struct launcher *launcher = NULL;
    trib_job job = TRIB_JOB_INIT;
    TRI_TRY(find_launcher(&launcher, variables));
    const char *local = first_set(variables, launcher->local_rank, LOCAL_NAMES);
    job.launcher = launcher->name;
    TRI_TRY(tri_variable_number(&job.n_ranks, variables, launcher->name, launcher->n_ranks, 1,
                                TRIB_JOB_RANKS_MAX));
    TRI_TRY(tri_variable_number(&job.rank, variables, launcher->name, launcher->rank, 0,
                                job.n_ranks - 1));
    TRI_TRY(
        tri_variable_number(&job.local_rank, variables, launcher->name, local, 0, job.n_ranks - 1));
    if (job.n_ranks > 1) {
        TRI_TRY(read_place(&job, variables, launcher));
        TRI_TRY(read_token(&job, variables, launcher));
    }
    *out = job;
    return TRIB_OK;
}
