"""Steps that solve tasks, by the names of the tasks."""

from __future__ import annotations

from collections.abc import Mapping

from webagent_jax.suites.infinity.experts.steps import Step, choose, click, select, type_text

_BY_APP: Mapping[str, Mapping[str, tuple[Step, ...]]] = {
    "elation-clinical-records": {
        "task_e1": (click("Johnson, Marcus"), click("×", after_text="Smoker")),
        "task_e3": (
            click("Settings"),
            click("", after_text="Show ICD-10 code search in assessment fields"),
        ),
        "task_e5": (
            click("Templates"),
            click("Delete", after_text="Injectable Administration"),
            click("Delete", after_text="Delete Template"),
        ),
        "task_e6": (
            click("Zhao, Helen"),
            click("+ Add Tag"),
            type_text("Fall-Risk", after_text="Tag Name"),
            click("Add Tag", after_text="alphabetical list"),
        ),
        "task_e13": (
            click("Settings"),
            *choose("Simple Note", after_text="Format used when creating new visit notes"),
        ),
        "task_m1": (
            click("Fitzgerald, James"),
            click("+ Add Problem"),
            type_text("Acute Sinusitis", "Problem title"),
            type_text("J01.90", "e.g. E11.65"),
            click("Save"),
        ),
        "task_m2": (
            click("Nakamura, Emily"),
            click("Vaccinations"),
            click("+ Add Vaccination"),
            type_text("Influenza", "Type to search or enter vaccine name..."),
            *choose("Intramuscular", after_text="Method"),
            click("", after_text="Site", before_text="Given On"),
            click("Left Deltoid", after_text="Method"),
            click("Save", after_text="Do Not Send to Registry"),
        ),
        "task_m4": (
            click("Henderson, Robert"),
            click("View All / Add Historical"),
            click("+ Add Historical Vitals"),
            type_text("126", after_text="Systolic BP"),
            type_text("78", after_text="Diastolic BP"),
            type_text("72", after_text="Heart Rate"),
            click("Save"),
        ),
        "task_h1": (
            click("Johnson, Marcus"),
            click("Mark Controlled"),
            click("Mark Controlled"),
            click("Mark Controlled"),
            click("Mark Controlled"),
        ),
        "task_h17": (
            click("Washington, Aaliyah"),
            click("×", after_text="Pediatric"),
            click("Patients"),
            click("Wu, Mei-Ling"),
            click("×", after_text="Pediatric"),
        ),
    },
    "elation-patient-communication": {
        "task_e2": (click("Reminders"), click("Acknowledge", after_text="James Rodriguez")),
        "task_e4": (
            click("Settings"),
            click("Admin Settings"),
            click("", after_text="patients can initiate conversations"),
            click("Save Changes"),
        ),
        "task_e5": (
            click("Patients"),
            type_text("Park", "Search patients..."),
            click("Park, David"),
            click("+ Add Tag"),
            click("VIP"),
        ),
        "task_e7": (
            click("Settings"),
            click("Telehealth"),
            click("Deactivate", after_text="Michael Torres"),
            click("Confirm"),
        ),
        "task_e9": (
            click("Settings"),
            *choose("72 hours", after_text="Unread Letter Alert Timeframe"),
            click("Save Changes"),
        ),
        "task_e12": (
            click("Settings"),
            click("Practice Locations"),
            click("Remove", after_text="East Bay Clinic"),
            click("Confirm"),
        ),
        "task_e13": (
            click("Settings"),
            click("Billing Codes"),
            click("Remove", after_text="99201"),
            click("Confirm"),
        ),
        "task_m8": (
            click("Settings"),
            click("Billing Codes"),
            click("+ Add CPT Code"),
            type_text("99205", "CPT Code"),
            type_text("Office visit, new patient, high complexity", "Description"),
            click("Add Code"),
        ),
        "task_m10": (
            click("Settings"),
            click("Message Routing"),
            *choose("Michael Torres", after_text="Configure routing for"),
            click("×", after_text="Front Desk"),
        ),
        "task_h2": (
            click("Patient Letters"),
            click("Christine Lee"),
            type_text("Let us adjust your Trazodone.", "Type your reply..."),
            click("Reply"),
            click("Sign Off & End Conversation"),
            click("Confirm"),
        ),
        "task_h9": (click("Reminders"), *[click("Acknowledge")] * 9),
        "task_h32": (
            click("Appointments"),
            click("Cancel", after_text="Susan Cho"),
            click("Confirm"),
        ),
    },
    "elation-prescriptions": {
        "task_e1": (click("Rx Requests"), click("Approve", after_text="Gabapentin 300mg capsule")),
        "task_e4": (click("", after_text="Latex"),),
        "task_e5": (
            click("Settings"),
            click("Drug Decision Support"),
            click("", after_text="may interact with patient allergies"),
        ),
        "task_e6": (
            click("Settings"),
            click("Drug Decision Support"),
            *choose("Major only", after_text="Drug-to-Drug Interaction Alerts"),
        ),
        "task_e11": (
            click("Settings"),
            click("Preferences"),
            *choose("Walgreens #7892", after_text="Default Pharmacy"),
        ),
        "task_m7": (
            click("Rx Requests"),
            click("Deny", after_text="Lisinopril 10mg tablet"),
            type_text("Needs a follow-up blood pressure check", after_text="Reason for Denial"),
            click("Deny Request"),
        ),
        "task_h1": (click("Rx Requests"), *[click("Approve")] * 6),
        "task_h9": (
            click("Rx Requests"),
            click("Deny & Add Reason"),
            type_text("The current medication is working well.", after_text="Reason for Denial"),
            click("Deny & Add Reason", after_text="Reason for Denial"),
            click("Deny & Add Reason"),
            type_text("The current sig is correct.", after_text="Reason for Denial"),
            click("Deny & Add Reason", after_text="Reason for Denial"),
        ),
        "task_h16": (
            click("Rx Requests"),
            click("Approve", after_text="Lisinopril 10mg tablet"),
            click("Approve", after_text="Atorvastatin 20mg tablet"),
            click("Deny", after_text="Gabapentin 300mg capsule"),
            type_text("Needs an appointment.", after_text="Reason for Denial"),
            click("Deny Request"),
            click("Approve", after_text="Sertraline 50mg tablet"),
        ),
        "task_h28": (
            click("", after_text="Allergies"),
            type_text("Tramadol", "e.g., Penicillin"),
            type_text("Seizures", "e.g., Rash, hives"),
            select("Severe", "Severity"),
            click("Add Allergy"),
            click("Settings"),
            click("Drug Decision Support"),
            *choose("Major only", after_text="Drug-to-Drug Interaction Alerts"),
        ),
    },
    "figma-text-and-typography": {
        "task_e1": (click("Hide", after_text="Copyright Notice"),),
        "task_e3": (click("Section Header"), click("Typography"), click("Center")),
        "task_e4": (click("Settings"), click("", after_text="straight quotes to curly quotes")),
        "task_e9": (click("Settings"), click("", after_text="Snap to grid")),
        "task_e15": (click("Section Header"), click("Typography"), click("Detach")),
        "task_m7": (
            click("Settings"),
            *choose("Roboto", after_text="Font family"),
            *choose("14px", after_text="Font size"),
        ),
        "task_m11": (
            click("Text Styles"),
            click("Delete style", after_text="Heading/Display"),
            click("Delete", after_text="Delete Text Style"),
        ),
        # The app stores nudges only while a layer is selected.
        "task_m13": (
            click("Page Title"),
            click("Settings"),
            type_text("2", after_text="Nudge amount"),
            type_text("20", after_text="Big nudge amount"),
        ),
        "task_h74": (
            click("Page Title"),
            click("Settings"),
            *choose("Japanese", after_text="Language"),
            type_text("50", after_text="Big nudge amount"),
            *choose("Right", after_text="Alignment"),
        ),
        "task_h16": (
            click("Text Styles"),
            click("Delete style", after_text="Body/Small"),
            click("Delete", after_text="Delete Text Style"),
            click("Delete style", after_text="Body/Large"),
            click("Delete", after_text="Delete Text Style"),
        ),
        "task_h63": tuple(
            click("Lock", after_text=layer)
            for layer in ("Arabic Welcome", "Hebrew Body", "Japanese Heading")
        ),
        "task_h75": (
            click("Hide", after_text="Arabic Welcome"),
            click("Lock", after_text="Hebrew Body"),
        ),
    },
    "gitlab-plan-and-track": {
        "task_e1": (
            type_text("Safari", "Search issues..."),
            click("Login page shows blank screen"),
            click("Close issue"),
        ),
        "task_e3": (
            click("To-Do List"),
            click("Done", after_text="Upgrade vulnerable dependencies"),
        ),
        "task_e5": (
            type_text("404", "Search issues..."),
            click("Fix typo in 404"),
            click("Edit", after_text="Weight"),
            type_text("3", after_text="Set weight"),
            click("Save"),
        ),
        "task_e8": (click("Milestones"), click("v4.3"), click("Close")),
        "task_e14": (
            click("Labels"),
            click("Edit", after_text="good-first-issue"),
            type_text("starter-issue", after_text="Title"),
            click("Save changes"),
        ),
        "task_m1": (
            click("Milestones"),
            click("New milestone"),
            type_text("v4.4 - Integrations", after_text="Title"),
            type_text("2026-08-01", "Start date"),
            type_text("2026-09-30", "Due date"),
            click("Create milestone"),
        ),
        "task_m3": (
            click("New issue"),
            type_text("Set up monitoring dashboard", after_text="Title"),
            click("Luca Rossi"),
            click("priorityhigh"),
            click("Create issue"),
        ),
        "task_h8": (
            click("New issue"),
            type_text("Emergency security patch", after_text="Title"),
            click("James O'Brien"),
            click("Oliver Schmidt"),
            click("prioritycritical"),
            click("security"),
            *choose("v4.2 - Security Hardening", after_text="Milestone"),
            type_text("2", "Weight"),
            click("This issue is confidential"),
            click("Create issue"),
        ),
        "task_h14": (
            click("To-Do List"),
            click("Mark all as done"),
            click("Issues"),
            click("New issue"),
            type_text("Review Q1 objectives", after_text="Title"),
            click("Sarah Chen"),
            click("prioritymedium"),
            click("Create issue"),
        ),
        "task_h35": (
            click("Labels"),
            click("Edit", after_text="Performance related"),
            type_text("perf", "Title"),
            type_text("Performance optimization work", "Description"),
            type_text("#0284c7", "#hex color"),
            click("Apply"),
            click("Save changes"),
        ),
    },
    "gmail": {
        "task_e1": (click("☆", before_text="Q1 Product Roadmap Review"),),
        "task_e5": (click("Settings"), click("Conversation view off")),
        "task_e8": (click("★", before_text="Partnership Opportunity"),),
        "task_e12": (click("Settings"), click("Disable hover actions")),
        "task_e14": (click("Settings"), click("Reply all")),
        "task_m16": (click("Spam"), click("Delete all spam messages"), click("Empty Spam now")),
        "task_m8": (
            click("Settings"),
            click("Inbox", after_text="Labels", kind="button"),
            click("", after_text="Social", kind="checkbox"),
            click("Save Changes"),
        ),
        "task_m10": (
            click("Settings"),
            click("Filters and Blocked Addresses"),
            click("delete", after_text="notifications@github.com"),
            click("Delete", after_text="Delete Filter"),
        ),
        "task_h5": (
            click("Promotions"),
            click("", kind="checkbox", before_text="Amazon"),
            click("", kind="checkbox", before_text="Nike"),
            click("", kind="checkbox", before_text="REI"),
            click("Delete"),
        ),
        "task_h14": (
            click("Settings"),
            click("Inbox", after_text="General"),
            *choose("Important first", after_text="Inbox type"),
            click("", after_text="Promotions", kind="checkbox"),
            click("", after_text="Updates", kind="checkbox"),
            click("", after_text="Forums", kind="checkbox"),
            click("Save Changes"),
        ),
    },
    "gmail-accounts-and-contacts": {
        "task_e2": (
            click("Settings", kind="item"),
            click("", after_text="Save contacts from people you email"),
        ),
        "task_e3": (click("Delegates"), click("close", after_text="expired"), click("Remove")),
        "task_e5": (click("Linked Services"), click("", after_text="YouTube")),
        "task_e7": (click("Merge & fix"), click("Dismiss", after_text="CloudNine")),
        "task_m3": (
            click("Delegates"),
            click("Add a delegate"),
            type_text("ops@techcorp.io", "Email address"),
            type_text("TechCorp Ops", "Name"),
            click("Add delegate"),
        ),
        "task_m12": (
            click("Linked Services"),
            click("", after_text="Google Maps"),
            click("", after_text="Chrome"),
        ),
        "task_h2": (
            click("Linked Services"),
            click("", after_text="Google Search"),
            click("", after_text="YouTube"),
            click("", after_text="Google Ads"),
            click("", after_text="Google Play"),
            click("", after_text="Chrome"),
            click("", after_text="Google Shopping"),
            click("", after_text="Google Maps"),
        ),
        "task_h1": (
            click("Delegates"),
            click("close", after_text="pending"),
            click("Remove"),
            click("close", after_text="expired"),
            click("Remove"),
            click("Add a delegate"),
            type_text("backup@admin.com", "Email address"),
            type_text("Backup Admin", "Name"),
            click("Add delegate"),
        ),
        "task_h12": (
            click("Merge & fix"),
            click("Dismiss", after_text="EuroDesign"),
            click("Merge", after_text="CloudNine"),
            click("Delegates"),
            click("close", after_text="pending"),
            click("Remove"),
        ),
    },
    "handshake-career-exploration": {
        "task_e1": (
            click("Employers", kind="button"),
            type_text("Spotify", "Search employers"),
            click("Follow"),
        ),
        "task_e3": (
            click("Jobs", kind="button"),
            click("bookmark-btn", after_text="Software Engineer Intern"),
        ),
        "task_e5": (click("Events", kind="button"), click("RSVP", after_text="JPM Markets")),
        "task_e8": (
            click("Messages", kind="button"),
            click("Apple"),
        ),
        "task_m1": (
            click("Maya Chen", after_text="Q&A"),
            click("Edit", after_text="Bio"),
            type_text(
                "CS student exploring opportunities in AI safety and alignment research.", "Bio"
            ),
            click("Save"),
        ),
        "task_m3": (
            click("Q&A"),
            type_text(
                "How do I prepare best for product management interviews at top tech companies?",
                "Type your question",
            ),
            click("Submit Question"),
        ),
        "task_m18": (
            click("Career Center"),
            click("Case Interview Prep"),
            click("Cancel Appointment"),
        ),
        "task_h1": (
            click("Employers", kind="button"),
            type_text("Consulting", "Search employers"),
            click("Follow"),
            click("Follow"),
            click("Follow"),
        ),
        "task_h15": (
            click("Career Center"),
            click("Mock Interview - Technical"),
            click("Cancel Appointment"),
            click("Career Center"),
            click("Case Interview Prep"),
            click("Cancel Appointment"),
        ),
        "task_h5": (
            click("Events", kind="button"),
            *[
                click("RSVP", after_text=event)
                for event in (
                    "AI/ML Careers at Meta",
                    "3:00 PM - 4:30 PM PT",
                    "Virtual Career Fair",
                    "Salesforce Futureforce",
                )
            ],
        ),
    },
    "superhuman-general": {
        "task_e1": (
            click("", kind="checkbox", before_text="Re: Series B Term Sheet"),
            click("★ Star"),
        ),
        "task_e12": (click("Snippets"), click("🗑", after_text="Out of Office")),
        "task_m1": (
            click("", kind="checkbox", before_text="Q2 Product Roadmap - Final Review"),
            click("🏷 Label"),
            click("Urgent", after_text="Apply Label"),
        ),
        "task_e5": (click("⚙"), click("", after_text="Show notification banners")),
        "task_e13": (click("⚙"), *choose("Trash", after_text="Swipe Left")),
        "task_m2": (
            click("New Brand Assets", kind="item"),
            click("×", after_text="Marketing"),
        ),
        "task_m4": (
            click("Quantum Computing", kind="item"),
            click("⏰ Remind"),
            click("Next week"),
        ),
        "task_m17": (
            click("Global Health Initiative", kind="item"),
            click("🗑", after_text="📁"),
        ),
        "task_m7": (
            click("⚙"),
            click("Reminders", after_text="Read Statuses"),
            click("All external emails"),
        ),
        "task_h4": (
            click("⚙"),
            *choose("Dark", after_text="Appearance"),
            click("", after_text="Show notification banners"),
            click("", after_text="Play a sound for new emails"),
        ),
        "task_h6": (
            click("Spam"),
            click("", kind="checkbox", before_text="Prince Okafor"),
            click("", kind="checkbox", before_text="CryptoGains Now"),
            click("", kind="checkbox", before_text="Discount Pharma"),
            click("🗑 Trash", after_text="selected"),
        ),
        "task_h14": (
            click("Snippets"),
            click("👥", after_text="Introduction"),
            click("🗑", after_text="Quick Check-in"),
            click("🗑", after_text="Decline Politely"),
        ),
        "task_e4": (click("⚙"), *choose("Dark", after_text="Appearance")),
    },
}

SOLUTIONS = {
    f"{app}/{task}": solution
    for app, solutions in _BY_APP.items()
    for task, solution in solutions.items()
}
