/*
 * policy_diagnosis.h - why a tenant never hits: its last requests all had different contexts, and this is where they
 * differ.
 *
 * Remembered of each tenant: for the last 100 requests the first 8 bytes of their COMPAT, and the start of the last
 * system text. When all 100 differ, the first byte is shown in which two system texts that followed each other differ.
 * Texts stay in memory and are shown to nobody: only the place and, around it, the kind of bytes (9 for a digit, a for
 * a letter).
 */
#ifndef QUIRE_GATEWAY_POLICY_DIAGNOSIS_H
#define QUIRE_GATEWAY_POLICY_DIAGNOSIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_DIAGNOSIS_REQUESTS 100u
#define POLICY_DIAGNOSIS_BYTES    4096u /* of a system text */

struct policy_diagnoses;

struct policy_diagnoses *policy_diagnoses_create(unsigned tenants_max); /* NULL without memory */
void policy_diagnoses_destroy(struct policy_diagnoses *diagnoses);
/* True: since the last hundred there is something to say about this tenant, and there was nothing before them. */
bool policy_diagnosis_add(struct policy_diagnoses *diagnoses, const char *tenant, const uint8_t compat[32],
                          const char *system, size_t system_bytes);
/* True: a sentence about this tenant in out. */
bool policy_diagnosis_of(const struct policy_diagnoses *diagnoses, const char *tenant, char *out, size_t out_bytes);
/* Calls back for each tenant of which there is something to say. */
void policy_diagnosis_each(const struct policy_diagnoses *diagnoses,
                           void (*tell)(void *context, const char *tenant, const char *sentence), void *context);

#endif
