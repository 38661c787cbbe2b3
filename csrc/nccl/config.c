/* What a new communicator tells NCCL of itself. A field that NCCL does not know it ignores; names may
 * be ignored, policies not. */
#include "csrc/nccl/config.h"

#include "csrc/base/status.h"

/* Versions as ncclGetVersion has them: 22809 is 2.28.9. */
enum { POLICY_SINCE = 22700, ZERO_SINCE = 22800 };

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

trib_status tri_nccl_config_check(const struct tri_config *config, const char *operation)
{
    if (config == NULL || tri_nccl_has_policy(config->cta_policy))
        return TRIB_OK;
    const int needed = since(config->cta_policy), found = loaded(), built = NCCL_VERSION_CODE;
    return tri_fail(
        TRIB_ERR_UNSUPPORTED,
        "%s: options.cta_policy is \"%s\", which NCCL has since %d.%d: NCCL %d.%d.%d is "
        "loaded, and this library was built with %d.%d.%d; update the older one, or "
        "pass TRIB_CTA_DEFAULT",
        operation, trib_cta_policy_name(config->cta_policy), needed / 10000, needed / 100 % 100,
        found / 10000, found / 100 % 100, found % 100, built / 10000, built / 100 % 100,
        built % 100);
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
