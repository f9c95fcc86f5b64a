/*
 * edit.h - changes to a document at the places that a path leads to.
 *
 * The places come from jsonpath_find. They are taken in an order in which each is still there when its turn comes: what
 * lies deeper first, and of an array the last first (edit_plan). A value may be put at several places: the tree then
 * holds it more than once, which is fine to print and not to change again. So a tree is edited by one command, printed,
 * and given up.
 */
#ifndef QUIRE_DOCUMENT_EDIT_H
#define QUIRE_DOCUMENT_EDIT_H

#include "document/json/jsonpath.h"

/* The order of n places. */
struct edit_plan {
    size_t *items; /* owned: indices into the matches */
    size_t n;
};
/* With `tops`, without places that lie inside of another, and without those that come twice. QUIRE_ENOMEM. */
int edit_plan(const struct jsonpath_matches *matches, bool tops, struct edit_plan *out, struct quire_error *err);
void edit_plan_fini(struct edit_plan *plan);

/* What is at the place now; NULL: nothing any more. Borrowed. *root is the document. */
json_t *edit_get(json_t *root, const struct jsonpath_match *place);
/* The value takes the place of what is there; its reference stays the caller's. At the root *root becomes it. All that
 * can fail is memory: QUIRE_ENOMEM, after which the tree may only be given up. */
int edit_set(json_t **root, const struct jsonpath_match *place, json_t *value, struct quire_error *err);
/* A new member of an object. */
int edit_add(json_t *object, const char *key, size_t key_bytes, json_t *value, struct quire_error *err);
/* Removes a member or an element; false where it is gone already. Not of the root. */
bool edit_remove(const struct jsonpath_match *place);
/* RFC 7396: members of the patch are added, replaced, merged, and removed where they are null. */
int edit_merge(json_t **root, const struct jsonpath_match *place, json_t *patch, struct quire_error *err);

#endif
