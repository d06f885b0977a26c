/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Money is counted in micro-dollars, as integers: sums are exact, and a rate keeps six decimals.
 * Only in text and JSON, in or out, is money a decimal number of dollars.
 */

#include <stdint.h>

enum { MONEY_DOLLAR = 1000 * 1000, MONEY_TEXT_SIZE = 32 };

/* No amount is larger than this: the sums of many still fit. */
#define MONEY_MAXIMUM_USD 1e9

/* The nearest amount; `usd` is between zero and MONEY_MAXIMUM_USD. */
int64_t money_from_usd(double usd);

/* The cost of a time at a price per hour, rounded to the nearest micro-dollar; 0 for a time that is
 * not positive. */
int64_t money_cost(int64_t price_per_hour, int64_t time_us);

/* The first time that costs at least this much; INT64_MAX when there is none. */
int64_t money_time_us(int64_t price_per_hour, int64_t amount);

/* "0.05", "12.00", "0.000125": dollars with two to six decimals. */
const char *money_text(int64_t amount, char text[MONEY_TEXT_SIZE]);
