/* What a new communicator tells NCCL of itself. A field that NCCL does not know it ignores; names may
 * be ignored, policies not. */
#include "csrc/nccl/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/status.h"

/* Versions as ncclGetVersion has them: 22809 is 2.28.9. That an abort ends calls on windows is read from
 * NCCL's sources: from 2.29.7 on its symmetric kernels look at the abort flag where they wait. */
enum {
    POLICY_SINCE = 22700,
    ZERO_SINCE = 22800,
    WINDOWS_SINCE = 22700,
    WINDOWS_ABORT_SINCE = 22907
};

_Static_assert(TRIB_CTA_EFFICIENCY == 1 && TRIB_CTA_ZERO == 2, "policies have NCCL's numbers");

static int loaded(void)
{
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

static int since(trib_cta_policy policy)
{
    return policy == TRIB_CTA_ZERO ? ZERO_SINCE : POLICY_SINCE;
}

bool tri_nccl_has_policy(trib_cta_policy policy)
{
    return policy == TRIB_CTA_DEFAULT ||
           (loaded() >= since(policy) && NCCL_VERSION_CODE >= POLICY_SINCE);
}

bool tri_nccl_aborts_windows(void)
{
    return loaded() >= WINDOWS_ABORT_SINCE && NCCL_VERSION_CODE >= WINDOWS_SINCE;
}

/* `what` the options ask for, which one of the two has not. */
static trib_status too_old(const char *operation, const char *what, int needed, const char *remedy)
{
    const int found = loaded(), built = NCCL_VERSION_CODE;
    return tri_fail(TRIB_ERR_UNSUPPORTED,
                    "%s: %s, which NCCL has since %d.%d: NCCL %d.%d.%d is loaded, and this library "
                    "was built with %d.%d.%d; update the older one, or %s",
                    operation, what, needed / 10000, needed / 100 % 100, found / 10000,
                    found / 100 % 100, found % 100, built / 10000, built / 100 % 100, built % 100,
                    remedy);
}

static trib_status check_policy(const struct tri_config *config, const char *operation)
{
    char what[64];
    if (tri_nccl_has_policy(config->cta_policy))
        return TRIB_OK;
    (void)snprintf(what, sizeof what, "options.cta_policy is \"%s\"",
                   trib_cta_policy_name(config->cta_policy));
    return too_old(operation, what, since(config->cta_policy), "pass TRIB_CTA_DEFAULT");
}

/* For copy engines. NCCL takes policies as bits of a number, and the environment comes before the options. */
static bool asks_for_engines(const struct tri_config *config)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    const char *text = getenv("NCCL_CTA_POLICY");
    char *end = NULL;
    const long policy = text == NULL ? 0 : strtol(text, &end, 0);
    return ((end == text ? config->cta_policy : policy) & TRIB_CTA_ZERO) != 0;
}

static trib_status check_windows(const struct tri_config *config, const char *operation)
{
    const int found = loaded();
    const bool aborts = tri_nccl_aborts_windows();
    if (!config->windows)
        return TRIB_OK;
    if (found < WINDOWS_SINCE || NCCL_VERSION_CODE < WINDOWS_SINCE)
        return too_old(operation, "TRIB_WINDOWS", WINDOWS_SINCE, "do without");
    if (config->unabortable || (aborts && !asks_for_engines(config)))
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNSUPPORTED,
                    "%s: TRIB_WINDOWS: no abort ends calls on windows %s, and NCCL %d.%d.%d is "
                    "loaded; %s, or add TRIB_WINDOWS_UNABORTABLE if that may be",
                    operation,
                    aborts ? "with TRIB_CTA_ZERO or its NCCL_CTA_POLICY" : "before NCCL 2.29.7",
                    found / 10000, found / 100 % 100, found % 100,
                    aborts ? "take another policy" : "load a newer one");
}

trib_status tri_nccl_config_check(const struct tri_config *config, const char *operation)
{
    if (config == NULL)
        return TRIB_OK;
    TRI_TRY(check_policy(config, operation));
    return check_windows(config, operation);
}

ncclConfig_t tri_nccl_config(const struct tri_config *config)
{
    ncclConfig_t out = NCCL_CONFIG_INITIALIZER;
    out.blocking = 1;
    out.splitShare = 0; /* a child shares nothing: aborting one leaves the other alone */
    if (config->min_ctas != 0)
        out.minCTAs = (int)config->min_ctas;
    if (config->max_ctas != 0)
        out.maxCTAs = (int)config->max_ctas;
    if (config->network[0] != '\0')
        out.netName = config->network;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    if (config->cta_policy != TRIB_CTA_DEFAULT)
        out.CTAPolicy = (int)config->cta_policy;
    if (config->name[0] != '\0')
        out.commName = config->name;
#endif
    return out;
}
