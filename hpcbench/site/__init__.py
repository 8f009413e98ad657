"""A cluster as hpcbench sees it: its profile, checks of a home, cron lines, cleaning."""
