/* SPDX-License-Identifier: Apache-2.0 */
#include "base/money.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t HOUR_US = (int64_t)3600 * 1000 * 1000;

int64_t money_from_usd(double usd)
{
    return (int64_t)llround(usd * MONEY_DOLLAR);
}

int64_t money_cost(int64_t price_per_hour, int64_t time_us)
{
    __int128 product = (__int128)price_per_hour * time_us;

    return time_us > 0 ? (int64_t)((product + HOUR_US / 2) / HOUR_US) : 0;
}

int64_t money_time_us(int64_t price_per_hour, int64_t amount)
{
    __int128 time_us;

    if (amount <= 0)
        return 0;
    if (price_per_hour <= 0)
        return INT64_MAX;
    /* Rounding reaches the amount half a micro-dollar earlier. */
    time_us = ((__int128)amount * HOUR_US - HOUR_US / 2 + price_per_hour - 1) / price_per_hour;
    return time_us > INT64_MAX ? INT64_MAX : (int64_t)time_us;
}

/* Every answer about a session has an amount in it, which is nothing most of the time. */
const char *money_text(int64_t amount, char text[MONEY_TEXT_SIZE])
{
    int length;

    if (amount == 0)
        return "0.00";
    length = snprintf(text, MONEY_TEXT_SIZE, "%s%lld.%06lld", amount < 0 ? "-" : "",
                      llabs((long long)amount / MONEY_DOLLAR),
                      llabs((long long)amount % MONEY_DOLLAR));
    for (int least = length - 4; length > least && text[length - 1] == '0'; length--)
        text[length - 1] = '\0';
    return text;
}
