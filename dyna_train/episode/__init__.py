"""The episode file `dyna.episode/1`. Import each room by its name: the profile alone loads no codec."""
