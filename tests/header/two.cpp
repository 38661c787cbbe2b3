// A second file with the header: nothing in it may be defined twice.
#include "tributary.h"

const char *two();

const char *two()
{
    return trib_status_message(TRIB_OK);
}
