"""A replay run put together: engines, store, runner and verdict, for a command and for the controller.

`prefillgate.runs.running.execute` carries a run out. It speaks through the listener it is given (`around.Said`) and
raises the errors of `errors`; nothing here knows of a terminal. Import from the modules: this one imports nothing.
"""
