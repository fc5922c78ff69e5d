"""Apps of the suite and tasks that it excludes (commit 1ca77813 of WebArena-Infinity)."""

from __future__ import annotations

from collections.abc import Mapping

AUDITED_APPS = (
    "elation-clinical-records",
    "elation-patient-communication",
    "elation-prescriptions",
    "figma-text-and-typography",
    "gitlab-plan-and-track",
    "gmail",
    "gmail-accounts-and-contacts",
    "handshake-career-exploration",
    "superhuman-general",
)
"""Apps that the suite reads.

Other apps of a checkout may have verifiers that accept the initial state, or break under the
content security policy. To add one, list it here, then run tools/audit_infinity.py and the tests.
"""

# Found by tools/audit_infinity.py.
_SOLVED_AT_RESET = """
elation-clinical-records/task_20
elation-patient-communication/task_h4
handshake-career-exploration/task_e15
handshake-career-exploration/task_h17
handshake-career-exploration/task_m4
superhuman-general/task_e3
superhuman-general/task_e8
superhuman-general/task_h46
superhuman-general/task_m13
superhuman-general/task_m14
superhuman-general/task_m9
"""

# The settings that these verifiers read change only by the app's drop-down lists. A click on an
# option toggles the list instead, because the click handler finds the element around it first.
_DROPDOWN_NEVER_SELECTS = """
gmail-accounts-and-contacts/task_38
gmail-accounts-and-contacts/task_39
gmail-accounts-and-contacts/task_49
gmail-accounts-and-contacts/task_50
gmail-accounts-and-contacts/task_51
gmail-accounts-and-contacts/task_52
gmail-accounts-and-contacts/task_53
gmail-accounts-and-contacts/task_68
gmail-accounts-and-contacts/task_e15
gmail-accounts-and-contacts/task_e16
gmail-accounts-and-contacts/task_e9
gmail-accounts-and-contacts/task_h11
gmail-accounts-and-contacts/task_h34
gmail-accounts-and-contacts/task_h52
gmail-accounts-and-contacts/task_h58
gmail-accounts-and-contacts/task_h6
gmail-accounts-and-contacts/task_h60
gmail-accounts-and-contacts/task_m11
gmail-accounts-and-contacts/task_m13
gmail-accounts-and-contacts/task_m20
"""

# "Save Notification Settings" saves the first provider, which redraws the page with the old
# settings of the others. These tasks require settings of another provider.
_ONLY_FIRST_PROVIDER_SAVED = """
elation-patient-communication/task_41
elation-patient-communication/task_h14
elation-patient-communication/task_h34
elation-patient-communication/task_h40
elation-patient-communication/task_h66
elation-patient-communication/task_h71
"""

# The verifiers expect the mode "manual" of auto reminders; the app has ai, external and none.
_NO_MANUAL_MODE = """
superhuman-general/task_h38
superhuman-general/task_h57
"""

EXCLUDED_TASKS: Mapping[str, str] = {
    **dict.fromkeys(_SOLVED_AT_RESET.split(), "the verifier accepts the app as it opens"),
    **dict.fromkeys(_DROPDOWN_NEVER_SELECTS.split(), "the drop-down list never selects an option"),
    **dict.fromkeys(_ONLY_FIRST_PROVIDER_SAVED.split(), "the app does not save the setting"),
    **dict.fromkeys(_NO_MANUAL_MODE.split(), "the app cannot reach the expected setting"),
}
