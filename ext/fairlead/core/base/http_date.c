#include "http_date.h"

#include <string.h>

static char *put(char *at, const char *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

static char *put_two(char *at, unsigned number) {
    *at++ = (char) ('0' + number / 10);
    *at++ = (char) ('0' + number % 10);
    return at;
}

/* Years begin in March here, so that the leap day is the last day of a year. The length of a month then follows from its number alone
 * (153 days in five months). */
void fl_http_date(char line[FL_DATE_SIZE], int64_t seconds_since_1970) {
    static const char weekdays[] = "ThuFriSatSunMonTueWed", months[] = "MarAprMayJunJulAugSepOctNovDecJanFeb";
    const int64_t first = -62135596800, last = 253402300799; /* the years 1 to 9999: four digits */
    int64_t time = seconds_since_1970 < first ? first : seconds_since_1970 > last ? last : seconds_since_1970;

    const int64_t day_seconds = 86400, days_to_1970 = 719468; /* since 0000-03-01 */
    int64_t day = (time - first) / day_seconds + first / day_seconds;
    unsigned second = (unsigned) ((time - first) % day_seconds);
    unsigned days = (unsigned) (day + days_to_1970), era = days / 146097, day_of_era = days % 146097;
    unsigned year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned month = (5 * day_of_year + 2) / 153, year = era * 400 + year_of_era + (month >= 10);

    char *at = put(line, "date: ", 6);
    at = put(at, weekdays + 3 * ((day % 7 + 7) % 7), 3);
    at = put(at, ", ", 2);
    at = put_two(at, day_of_year - (153 * month + 2) / 5 + 1);
    *at++ = ' ';
    at = put(at, months + 3 * month, 3);
    *at++ = ' ';
    at = put_two(at, year / 100);
    at = put_two(at, year % 100);
    *at++ = ' ';
    at = put_two(at, second / 3600);
    *at++ = ':';
    at = put_two(at, second / 60 % 60);
    *at++ = ':';
    at = put_two(at, second % 60);
    put(at, " GMT\r\n", 6);
}
