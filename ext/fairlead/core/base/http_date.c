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
static const char months[] = "MarAprMayJunJulAugSepOctNovDecJanFeb";
static const int64_t day_seconds = 86400, days_to_1970 = 719468; /* since 0000-03-01 */

void fl_http_date_format(char text[FL_HTTP_DATE_SIZE], int64_t seconds_since_1970) {
    static const char weekdays[] = "ThuFriSatSunMonTueWed";
    const int64_t first = -62135596800, last = 253402300799; /* the years 1 to 9999: four digits */
    int64_t time = seconds_since_1970 < first ? first : seconds_since_1970 > last ? last : seconds_since_1970;

    int64_t day = (time - first) / day_seconds + first / day_seconds;
    unsigned second = (unsigned) ((time - first) % day_seconds);
    unsigned days = (unsigned) (day + days_to_1970), era = days / 146097, day_of_era = days % 146097;
    unsigned year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    unsigned day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    unsigned month = (5 * day_of_year + 2) / 153, year = era * 400 + year_of_era + (month >= 10);

    char *at = put(text, weekdays + 3 * ((day % 7 + 7) % 7), 3);
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
    put(at, " GMT", 4);
}

void fl_http_date(char line[FL_DATE_SIZE], int64_t seconds_since_1970) {
    memcpy(line, "date: ", 6);
    fl_http_date_format(line + 6, seconds_since_1970);
    memcpy(line + 6 + FL_HTTP_DATE_SIZE, "\r\n", 2);
}

/* Reads a date by a pattern: w the name of the weekday, b that of the month, D day, Y year, y its last two digits, h m s the time. A space
 * stands for one or two, anything else for itself. */
static bool read_pattern(const char *at, const char *end, const char *pattern, int fields[6]) {
    static const char numbers[] = "DbYhmsy"; /* the order of the fields */
    for (; *pattern != 0; pattern++) {
        if (*pattern == 'w') {
            const char *first = at;
            while (at < end && ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z')) at++;
            if (at - first < 3)
                return false;
        } else if (*pattern == 'b') {
            if (end - at < 3)
                return false;
            int month = 0;
            while (month < 12 && memcmp(months + 3 * month, at, 3) != 0) month++;
            if (month == 12)
                return false;
            fields[1] = month;
            at += 3;
        } else if (strchr(numbers, *pattern) != NULL) {
            int width = *pattern == 'Y' ? 4 : 2, value = 0, count = 0;
            for (; count < width && at < end && *at >= '0' && *at <= '9'; count++) value = value * 10 + (*at++ - '0');
            if (count != width && !(*pattern == 'D' && count == 1))
                return false;
            if (*pattern == 'y')
                fields[2] = value + (value < 70 ? 2000 : 1900);
            else
                fields[strchr(numbers, *pattern) - numbers] = value;
        } else {
            if (at == end || *at++ != *pattern)
                return false;
            if (*pattern == ' ' && at < end && *at == ' ')
                at++;
        }
    }
    return at == end;
}

bool fl_http_date_parse(const char *text, size_t size, int64_t *seconds_since_1970) {
    static const char *const patterns[] = {"w, D b Y h:m:s GMT", "w, D-b-y h:m:s GMT", "w b D h:m:s Y"};
    for (int i = 0; i < 3; i++) {
        int fields[6] = {0};
        if (!read_pattern(text, text + size, patterns[i], fields))
            continue;
        int day = fields[0], month = fields[1], year = fields[2] - (month >= 10);
        if (day < 1 || day > 31 || year < 1 || fields[3] > 23 || fields[4] > 59 || fields[5] > 60)
            return false;
        int era = year / 400, year_of_era = year % 400, day_of_year = (153 * month + 2) / 5 + day - 1;
        int64_t days = (int64_t) era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        *seconds_since_1970 = (days - days_to_1970) * day_seconds + fields[3] * 3600 + fields[4] * 60 + fields[5];
        return true;
    }
    return false;
}
