"""The kernel lab: checks one kernel, built-in or edited, against the op's reference on a set of small cases."""
