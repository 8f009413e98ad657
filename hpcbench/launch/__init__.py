"""From a resolved plan to jobs: prepare what they need, submit them once, know what became of them."""
